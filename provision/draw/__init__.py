"""Plans, drawn: terminal, picture, page."""

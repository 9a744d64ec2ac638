"""Plans written for other tools: one target, one module."""

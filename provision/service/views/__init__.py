"""Views of plans for the web page: drawings, changes between two plans, and a report as a single file."""

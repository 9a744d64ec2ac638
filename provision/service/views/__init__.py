"""Plans and answers for pages: drawings, changes between plans, and a report as a single file."""

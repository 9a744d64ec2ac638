"""Plans and answers as pages show them: drawings, what changes between plans, a report to send round."""

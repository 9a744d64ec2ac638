"""What-if questions: an instance is varied and solved at every point; answers are sentences, tables and plots."""

"""What-if questions: an instance varied, solved at every point, and told in words, tables and plots."""

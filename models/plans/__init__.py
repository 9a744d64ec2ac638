"""Plans, and results and reports about them."""

"""Plans, and the results and reports about plans."""

"""Fits to the times of operators: their laws, what tables tell beyond these, and coefficients of iterations."""

"""Exact methods, and the search model that every method reads: problem, patterns and their prices."""

"""Measures models on a GPU, one operating point at a time."""

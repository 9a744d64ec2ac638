"""Measures models on a GPU."""

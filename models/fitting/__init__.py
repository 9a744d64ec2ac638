"""Fits every kind of performance model, and chooses which points to measure."""

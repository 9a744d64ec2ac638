"""Fits of every kind of performance model, and which points to measure."""

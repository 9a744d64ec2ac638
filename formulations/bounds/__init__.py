"""Bounds that need no columns, and the one over numbers of GPUs of each type that all prices prove together."""

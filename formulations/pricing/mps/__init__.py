"""Spatial sharing: replicas share a whole GPU under MPS, and slow each other down by a law of interference."""

"""Replicas that share a whole GPU under MPS, after iGniter's model."""

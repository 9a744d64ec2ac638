"""Exact models of small instances with explicit GPUs, slots and resource units, which check other methods."""

"""Exact models of small instances with explicit GPUs, slots and resource units: a reference for the other methods."""

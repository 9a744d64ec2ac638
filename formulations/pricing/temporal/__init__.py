"""Temporal sharing (gpu-lets): replicas take turns on a part of a GPU."""

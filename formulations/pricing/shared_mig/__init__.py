"""Slices that replicas of different workloads share at routed rates (closed networks)."""

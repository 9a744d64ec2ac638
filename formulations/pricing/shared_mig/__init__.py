"""Slices that replicas of different workloads share; how long a batch takes depends on the routed rates (closed
networks).
"""

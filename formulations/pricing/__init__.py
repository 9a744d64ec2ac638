"""Pricing: which replicas may run together on a slice, and which pattern is the most valuable at given prices (duals).

There is one room for each way of sharing: mps, shared_mig, temporal.
"""

"""Pricing: which replicas may run together in a slice, and the most valuable pattern at given dual prices.

There is one room for each way of sharing: alone, mps, shared_mig, temporal.
"""

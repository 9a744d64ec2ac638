"""Marginal prices: what one more request/s of a workload costs."""

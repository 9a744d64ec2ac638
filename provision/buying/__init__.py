"""Demand over time, and what to buy for it: commitments for all periods, and a plan for each."""

"""Replanning: from a running plan to a plan for new demand, with the least sum of cost and disturbance."""

"""Replanning: from a running plan to one for new demand, with the least sum of cost and disturbance."""

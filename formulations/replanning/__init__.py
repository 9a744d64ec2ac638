"""The least sum of cost and disturbance."""

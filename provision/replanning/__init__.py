"""Replans: finds the plan for new demand with the least sum of cost and disturbance, and replays changing demand."""

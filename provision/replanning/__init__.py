"""Replanning: the best plan for new demand that disturbs the running plan little, and replays of demand."""

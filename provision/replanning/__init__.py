"""New demand against the plan that runs: the best plan that disturbs little, and replays of demand."""

"""Who goes without where GPUs or money are short, and what would bring each workload back."""

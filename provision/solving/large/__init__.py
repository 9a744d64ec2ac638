"""Large instances: which are refused, and how many workloads that share GPUs are planned."""

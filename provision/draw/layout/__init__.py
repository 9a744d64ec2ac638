"""How a plan is laid out for drawing: rows of GPUs with boxes for slices and replicas, and a table of workloads."""

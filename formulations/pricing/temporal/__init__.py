"""gpu-lets: parts of a GPU on which replicas take turns."""

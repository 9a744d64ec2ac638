"""gpu-lets: parts of a GPU on which models take turns."""

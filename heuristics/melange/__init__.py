"""Mélange (Griggs et al., arXiv 2404.14527): GPU types for request sizes by an integer program over pooled capacity."""

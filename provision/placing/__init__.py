"""Deals the GPUs of plans to nodes, and plans instances with ``places``."""

"""Deals the GPUs of plans to nodes."""

"""Solving: from an instance to a verified plan."""

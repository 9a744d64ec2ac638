"""Experiments of papers that do not result in plans."""

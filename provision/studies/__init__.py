"""Experiments of papers whose results are not plans."""

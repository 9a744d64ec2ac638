"""Errors, field types, clocks, compiled kernels and other helpers that all other packages use."""

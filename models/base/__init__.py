"""Errors, field types and compiled kernels that everything stands on."""

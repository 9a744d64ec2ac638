"""Bounds that need no columns, and the bound on the numbers of GPUs of each type, which the master's duals prove."""

"""Bounds that need no columns, and the bound on numbers of GPUs of each type, which the master's duals prove."""

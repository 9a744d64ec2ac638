"""VELTAIR's layers on a CPU: costs, networks, times and slowdowns."""

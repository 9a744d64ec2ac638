"""Warm starts: columns, prices and plans of an earlier solve as the beginning of the next one."""

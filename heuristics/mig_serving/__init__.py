"""MIG-serving (2021)."""

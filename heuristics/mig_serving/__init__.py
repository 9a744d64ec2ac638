"""The heuristics of MIG-serving (Tan et al. 2021)."""

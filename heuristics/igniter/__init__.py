"""The heuristics of iGniter (TPDS 2022)."""

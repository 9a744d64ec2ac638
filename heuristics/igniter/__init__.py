"""iGniter (TPDS 2022)."""

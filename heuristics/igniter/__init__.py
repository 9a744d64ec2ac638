"""iGniter (TPDS 2022) and what it compares with."""

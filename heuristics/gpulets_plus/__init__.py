"""gpu-lets+, as iGniter compares with it (TPDS 2022)."""

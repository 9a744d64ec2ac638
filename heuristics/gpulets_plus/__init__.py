"""gpu-lets+: the version of gpu-lets with which iGniter (TPDS 2022) is compared."""

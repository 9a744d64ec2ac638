"""gpu-lets+: the version of gpu-lets that iGniter (TPDS 2022) is compared with."""

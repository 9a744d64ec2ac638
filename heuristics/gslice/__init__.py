"""GSLICE (SoCC 2020) in the two versions with which gpu-lets and iGniter are compared."""

"""GSLICE (SoCC 2020) in the two versions that gpu-lets and iGniter are compared with."""

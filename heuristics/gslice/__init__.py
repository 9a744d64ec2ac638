"""GSLICE (SoCC 2020), as gpu-lets and as iGniter compare with it."""

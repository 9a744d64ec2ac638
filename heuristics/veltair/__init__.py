"""The heuristics of VELTAIR (ASPLOS 2022): layer blocks and code versions on a CPU."""

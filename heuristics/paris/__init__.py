"""The heuristic of PARIS (DAC 2022)."""

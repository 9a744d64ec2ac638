"""The heuristics of ParvaGPU (SC 2024)."""

"""gpu-lets (ATC 2022)."""

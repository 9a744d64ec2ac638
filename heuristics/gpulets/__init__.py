"""gpu-lets (ATC 2022) and what it compares with."""

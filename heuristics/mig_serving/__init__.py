"""MIG-serving (2021) and PARIS (DAC 2022)."""

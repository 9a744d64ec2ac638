"""PARIS (DAC 2022)."""

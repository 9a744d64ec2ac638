"""VELTAIR (ASPLOS 2022): layers measured on a CPU, its experiments replayed, and their figures."""

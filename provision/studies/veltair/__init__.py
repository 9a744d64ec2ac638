"""VELTAIR (ASPLOS 2022): measures layers on a CPU, replays the paper's experiments, and draws its figures."""

"""The heuristics of gpu-lets (ATC 2022): elastic partitioning and the ideal scheduler."""

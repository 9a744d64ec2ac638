"""The heuristics of InSS: a trained actor places workloads, and a binary search chooses batch sizes."""

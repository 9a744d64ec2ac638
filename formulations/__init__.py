"""Exact models and their bounds; they know the models below and neither the heuristics nor the face."""

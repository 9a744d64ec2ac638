"""Predicts the times of a language model's operators from their shapes, and the times of iterations that are composed
of operators.
"""

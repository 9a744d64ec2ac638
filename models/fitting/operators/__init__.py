"""Fits the times of a language model's operators: laws, corrections of these laws from tables, and coefficients of
iterations.
"""

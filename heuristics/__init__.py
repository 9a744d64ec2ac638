"""Heuristics: a room for each published system and ``core`` for our own.

They import the models and the search model only.
"""

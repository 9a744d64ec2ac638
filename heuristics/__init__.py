"""Heuristics: a package for each published system, and ``core`` for the package's own heuristics.

They build on the models and on `provision.formulations`.
"""

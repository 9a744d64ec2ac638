"""Reads, writes, imports and generates problem files; the shipped instances are in ``data/``."""

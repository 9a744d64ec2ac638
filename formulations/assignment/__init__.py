"""Explicit GPUs, slots and resource units: the oracle for the rest."""

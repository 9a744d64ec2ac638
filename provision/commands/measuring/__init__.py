"""Verbs that measure models and fit performance models to what was measured: ``profile``, ``fit`` and their kin."""

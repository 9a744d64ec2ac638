"""Verbs that measure models and fit performance models to measurements: ``profile``, ``fit``, ``profile-layers``,
``fit-layers``.
"""

"""Verbs that carry plans out: ``status``, ``diff``, ``assert``, ``apply``, ``rollback``, ``export``."""

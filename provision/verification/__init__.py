"""Verifies plans: everything is recomputed from the plan and the performance models."""

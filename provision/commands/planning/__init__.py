"""Verbs that make, check, explain and compare plans."""

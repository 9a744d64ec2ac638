"""Instances made by a rule, with a seed."""

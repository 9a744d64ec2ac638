"""Verbs that make, check, explain and compare plans: ``solve``, ``verify``, ``compare``, ``what-if``, ``replan`` and
others.
"""

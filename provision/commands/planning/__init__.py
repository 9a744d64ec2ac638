"""Verbs that make, judge and compare plans: ``solve``, ``verify``, ``compare``, ``what-if``, ``replan`` and others."""

"""Verbs that plan, judge plans and ask what changes: ``solve``, ``verify``, ``compare``, ``what-if``, ``replan`` ..."""

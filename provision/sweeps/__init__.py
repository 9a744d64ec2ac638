"""Answers what-if questions: varies an instance, solves it at every point, and tells the results in sentences, tables
and plots.
"""

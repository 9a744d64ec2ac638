"""Looks at what runs: reads clusters and machines, recommends, calibrates, defragments, and watches. It only reads,
unless it is asked to act.
"""

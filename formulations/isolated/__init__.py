"""Isolated slices: the integer program over partitions and segments, its relaxation for shared slices, and spreading.
"""

"""Isolated slices: the integer program over partitions and segments, and the bound by replica sets."""

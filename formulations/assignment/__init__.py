"""Exact models of small instances with explicit GPUs, slots and resource units. They check the results of other
methods.
"""

"""Puts a plan on a Kubernetes cluster: the objects of its export are applied, awaited, checked, and taken back on
failure.
"""

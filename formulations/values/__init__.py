"""Prices of replicas as functions of the rate that they carry: bounds for any number of workloads, plans for very many.
"""

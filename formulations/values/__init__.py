"""Prices of replicas as functions of the rate that they carry: bounds and plans for many workloads."""

"""Compares methods over instances and seeds: runs, means with confidence intervals, tables for papers."""

"""Reads, checks and writes problem files."""

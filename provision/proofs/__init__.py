"""Certificates of bounds, and a program that checks them without solver or search model (see docs/proofs.md)."""

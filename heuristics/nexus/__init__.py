"""Nexus (SOSP 2019)."""

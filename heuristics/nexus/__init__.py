"""The heuristics of Nexus (SOSP 2019)."""

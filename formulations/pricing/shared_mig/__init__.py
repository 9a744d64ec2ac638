"""Slices that closed networks share: how long a batch takes depends on the routed rates."""

"""The search model: an instance as methods search it, with GPU pools, slice types, demand groups and limits."""

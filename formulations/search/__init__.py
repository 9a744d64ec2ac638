"""The search model: an instance in the form that methods use, with GPU pools, slice types, demand groups and limits."""

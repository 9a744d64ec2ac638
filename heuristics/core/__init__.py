"""Fast methods of this package: greedy, ruin and recreate, packing."""

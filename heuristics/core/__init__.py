"""The fast methods of this package: greedy, and ruin and recreate."""

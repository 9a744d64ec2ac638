"""What may run together in one slice, and what a pattern is worth at given prices: one room per way of sharing."""

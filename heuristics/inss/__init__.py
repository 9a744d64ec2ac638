"""InSS: a trained actor for placement, binary search for batches."""

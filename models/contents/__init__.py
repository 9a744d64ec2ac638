"""What may stand in one slice, one room per way of sharing."""

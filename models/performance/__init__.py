"""Performance models: they predict how fast a model runs on a slice, alone and beside other models."""

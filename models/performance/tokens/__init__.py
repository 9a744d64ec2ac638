"""Language models served by continuous batching: the time of an iteration, the engine, and the replay of a load."""

"""Trains InSS's scheduler: the environment, the soft actor-critic, checkpoints."""

"""VELTAIR's experiments, replayed."""

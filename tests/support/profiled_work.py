"""Callables to profile without a GPU."""

import os
import time


def sleeper(device, batch):
    """Two milliseconds a request."""
    return lambda: time.sleep(0.002 * batch)


def out_of_memory(device, batch):
    """Like PyTorch on a GPU that is too small."""
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def broken(device, batch):
    """Anything else that may go wrong in a model."""
    raise RuntimeError("wrong\nshape")


def deadly(device, batch):
    """Ends its process."""
    return lambda: os._exit(3)

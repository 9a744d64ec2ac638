"""Python's search for cycles of objects, paused where very many objects are made that are in none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles for a while: among ten thousands of new objects it takes up to half the time.

    Use it as a context or to decorate a function. Objects without cycles are freed as ever.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

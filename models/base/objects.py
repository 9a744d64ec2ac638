"""Helpers for any Python objects: a value that is certainly there, a cache key that compares by identity, and a pause
of the cyclic garbage collector while code makes very many objects.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """Return a value whose type allows None, at a place where it cannot be None. Raises AssertionError if the value is
    None, which is a defect of the caller.
    """
    assert value is not None
    return value


class Identity(NamedTuple, Generic[T]):
    """Wraps an object as a cache key that is compared by identity (``is``) and not by content, since that may take
    long.
    """

    one: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.one is other.one

    def __hash__(self) -> int:
        return id(self.one)


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the cyclic garbage collector off inside the block; it can take half the time of making many objects.

    Use it as a context manager or as a decorator. Objects that are in no cycle are freed as usual.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

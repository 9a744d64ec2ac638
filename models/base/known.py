"""Turns the type of an optional value into the type of a value that is certainly there."""

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """Return a value whose type allows None, at a place where it cannot be None. Raises AssertionError if the value is
    None, which is a defect of the caller.
    """
    assert value is not None
    return value

"""Optional values where they must be there."""

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """A value that may be None elsewhere and cannot be where this is called.

    Raises
    ------
    AssertionError
        When it is None: a defect of the caller.
    """
    assert value is not None
    return value

"""Makes cache keys for objects that cannot be hashed, or only slowly."""

from typing import Generic, NamedTuple, TypeVar

One = TypeVar("One")


class Identity(NamedTuple, Generic[One]):
    """Wraps an object as a cache key that is compared by identity (``is``) and not by content, since that may take
    long.
    """

    one: One

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.one is other.one

    def __hash__(self) -> int:
        return id(self.one)

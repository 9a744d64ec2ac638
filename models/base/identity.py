"""Keys of caches for what cannot be hashed, or only slowly."""

from typing import Generic, NamedTuple, TypeVar

One = TypeVar("One")


class Identity(NamedTuple, Generic[One]):
    """Something as a cache key, compared by identity: comparing contents may take longer than what is cached."""

    one: One

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.one is other.one

    def __hash__(self) -> int:
        return id(self.one)

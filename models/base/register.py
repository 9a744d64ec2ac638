"""Registers of objects that packages declare as entry points, by name."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, cast

from provision.models.base.errors import InputError
from provision.models.base.spelling import one_of

T = TypeVar("T")


class Register(Mapping[str, T]):
    """A mapping from the names of a group of entry points to their objects, which are imported on first use."""

    def __init__(self, group: str) -> None:
        self.group = group

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in sorted(entry_points(group=self.group))}

    def __getitem__(self, name: str) -> T:
        return cast(T, self._entries[name].load())

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str, what: str) -> T:
        """The object registered under a name; ``what`` tells the user what kind of name it is, such as "method". Raises
        InputError if there is no such name; the message lists the known names.
        """
        if name not in self._entries:
            raise InputError(f"{what} {name!r}: no such name; {one_of(name, self)}")
        return self[name]

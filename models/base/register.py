"""Registers of objects that packages declare as entry points, by name, and suggestions for a misspelt name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, cast

from provision.models.base.errors import InputError

LEAST_LIKENESS = 0.6
"""The similarity from which on a name is suggested, as difflib measures it: twice the number of common characters
divided by the number of all characters.
"""
SIZE = re.compile(r"\b\d+(?:\.\d+)?b\b")
"""The size of a language model in its name: billions of parameters."""
LEAST_START, MOST_NAMED = 3, 2
"""A word of at least LEAST_START characters may be the start of a name; at most MOST_NAMED names are suggested."""
T = TypeVar("T")


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A suggestion to append to an error message, such as ``; did you mean 'NAME'?``.

    It has the known names that begin with the word; if there are none or too many, the most similar known name; empty
    if no name is similar. A model of another size is another model, however similar its name.
    """
    there, plain = {name.lower(): name for name in known}, str(word).lower()
    begun = [name for lower, name in there.items() if lower.startswith(plain)] if len(plain) >= LEAST_START else []
    if not 0 < len(begun) <= MOST_NAMED:
        size = SIZE.findall(plain)
        alike = [name for name in there if not size or SIZE.findall(name) == size]
        begun = [there[close] for close in get_close_matches(plain, alike, 1, LEAST_LIKENESS)]
    return f"; did you mean {' or '.join(map(repr, begun))}?" if begun else ""


def one_of(word: object, known: Iterable[str], listed_by: str = "") -> str:
    """The end of an error message on an unknown name: the name that it may mean first, then all known names; of many
    names instead the command that lists them.
    """
    names = list(known)
    meant = did_you_mean(word, names).removeprefix("; ")
    if listed_by:
        return f"{meant} `{listed_by}` lists all".lstrip()
    return f"{meant} Or use one of {', '.join(names)}" if meant else f"use one of {', '.join(names)}"


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

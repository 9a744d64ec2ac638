"""The lines of a certificate: JSON objects, each with a seal, a checksum of itself and of the seal before it.

Seals tell which line was changed; that a bound holds is shown by the claims alone, which `check` recomputes.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple


class RefusedError(Exception):
    """A line does not hold; the message names it."""


class Line(NamedTuple):
    """A claim of a certificate: its number in the file, from 1, and its fields."""

    number: int
    fields: dict[str, Any]

    def whole(self, field: str) -> int:
        """A field that is a whole number, 0 or more."""
        value = self.fields.get(field)
        if type(value) is not int or value < 0:
            raise self.refused(f"{field} should be a whole number, 0 or more")
        return value

    def refused(self, why: str) -> RefusedError:
        """The error that this line does not hold."""
        return RefusedError(f"line {self.number}: {why}")


def sealed(claims: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The text of every line of a certificate."""
    seal = ""
    for fields in claims:
        seal = _seal(seal, fields)
        yield json.dumps(fields | {"seal": seal})


def unsealed(texts: Iterable[str]) -> Iterator[Line]:
    """The lines of a certificate; RefusedError at the first that does not have its seal."""
    before = ""
    for number, text in enumerate(texts, start=1):
        try:
            fields = json.loads(text)
            seal, before = fields.pop("seal"), _seal(before, fields)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RefusedError(f"line {number}: is no sealed JSON object") from None
        if seal != before:
            raise RefusedError(f"line {number}: is not as it was written, or a line before it is missing")
        yield Line(number, fields)


def _seal(before: str, fields: dict[str, Any]) -> str:
    return sha256((before + json.dumps(fields, sort_keys=True)).encode()).hexdigest()[:12]

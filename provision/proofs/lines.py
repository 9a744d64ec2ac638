"""The lines of a certificate: JSON objects, each with a seal, a checksum of itself and of the seal before it.

Seals tell which line was changed; that a bound holds is shown by the claims alone, which `check` recomputes.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

MOST = 2**53
"""The largest price or worth of a certificate. So the worth of a GPU with up to a hundred replicas fits into 64 bits,
and the kernels that add up worths are exact.
"""
MOST_UNITS = 10**18
"""The largest bound of a certificate, in units of price."""


class RefusedError(Exception):
    """A line does not hold; the message names it."""


class HardError(Exception):
    """A claim would take too long to check."""


class Line(NamedTuple):
    """A claim of a certificate: its number in the file, from 1, and its fields."""

    number: int
    fields: dict[str, Any]

    def whole(self, field: str, most: int = MOST) -> int:
        """A field that is a whole number from 0 to ``most``."""
        value = self.fields.get(field)
        if type(value) is not int or not 0 <= value <= most:
            raise self.refused(f"{field} should be a whole number from 0 to {most:,}")
        return value

    def only(self, *fields: str) -> None:
        """Refuse the line unless it has these fields and no others."""
        if odd := sorted(self.fields.keys() ^ set(fields)):
            what = "not known here" if odd[0] in self.fields else "missing"
            raise self.refused(f"the field {odd[0][:40]!r} is {what}")

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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RefusedError(f"line {number}: is no sealed JSON object") from None
        if seal != before:
            raise RefusedError(f"line {number}: is not as it was written, or a line before it is missing")
        yield Line(number, fields)


def _seal(before: str, fields: dict[str, Any]) -> str:
    return sha256((before + json.dumps(fields, sort_keys=True)).encode()).hexdigest()[:12]

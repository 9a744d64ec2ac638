"""Describes sweeps: the values of parameters, and the points that these form."""

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from provision.instances.files.files import FilePath, load, validate
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Number, Record, Text, Version

MOST_POINTS = 100_000


class Sweep(Record):
    """A sweep as a file holds it: every parameter with its values.

    Values are a list, or text such as ``0.8:1.4:0.05`` (first, last, step) or ``1,2,4``. ``grid`` means all
    combinations; ``one_at_a_time`` varies each parameter while the others are as in the instance.
    """

    version: Version = 1
    points: Literal["grid", "one_at_a_time"] = "grid"
    vary: Annotated[dict[Name, list[Number | Text] | Text], Field(min_length=1)]


def read_sweep(path: FilePath) -> Sweep:
    """The Sweep in a YAML or JSON file."""
    return validate(Sweep, load(path), path)


def made(vary: Mapping[str, Sequence[float | str] | str], one_at_a_time: bool = False) -> Sweep:
    """The Sweep of the given values by parameter. Raises InputError if the values are neither lists nor texts, or hold
    something else than numbers and texts.
    """
    content = {"vary": vary, "points": "one_at_a_time" if one_at_a_time else "grid"}
    return validate(Sweep, content, "vary")


def values_of(sweep: Sweep) -> dict[str, list[float | str]]:
    """The values of every parameter by name. Raises InputError if a text is neither a range nor a list, or a range has
    no values or too many.
    """
    return {name: _values(name, values) for name, values in sweep.vary.items()}


def points_of(sweep: Sweep) -> list[dict[str, float | str]]:
    """All points of a sweep, each a dictionary ``{name: value}``; neighbouring points stand next to each other. Raises
    InputError in the cases of ``values_of``, and if there are more than MOST_POINTS points.
    """
    values = values_of(sweep)
    if sweep.points == "one_at_a_time":
        _refuse_many("the sweep", sum(map(len, values.values())))
        return [{name: value} for name, column in values.items() for value in column]
    _refuse_many("the grid", math.prod(map(len, values.values())))
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _values(name: str, given: list[float | str] | str) -> list[float | str]:
    if isinstance(given, list):
        parts: list[float | str] = given
    elif ":" in given:
        parts = [*_range(name, given)]
    else:
        parts = [_number(part) for part in given.split(",")]
    if not all(math.isfinite(part) for part in parts if isinstance(part, float)):
        raise InputError(f"vary {name}={given}: a value is not finite; write the numbers that you mean")
    if any(part < 0 for part in parts if isinstance(part, float)):
        raise InputError(f"vary {name}={given}: a value is below 0; write values of 0 or more")
    if not parts or "" in parts:
        raise InputError(f"vary {name}={given}: no values; write FIRST:LAST:STEP or VALUE,VALUE")
    if len({str(part) for part in parts}) < len(parts):
        raise InputError(f"vary {name}={given}: a value stands twice; keep one")
    return parts


def _range(name: str, text: str) -> list[float]:
    """The values of a range, computed in decimal arithmetic; the last value is included if a multiple of the step
    reaches it.
    """
    try:
        first, last, step = (Decimal(part) for part in text.split(":"))
        steps = (last - first) / step
    except (ValueError, ArithmeticError):
        raise InputError(f"vary {name}={text}: not a range; write FIRST:LAST:STEP, as 0.8:1.4:0.05") from None
    if not (step.is_finite() and steps.is_finite() and steps >= 0):
        raise InputError(f"vary {name}={text}: an empty range; the step should lead from {first} to {last}")
    _refuse_many(f"{name}={text}", int(steps) + 1)
    return [float(first + index * step) for index in range(int(steps) + 1)]


def _number(text: str) -> float | str:
    """The number that a text writes, or the text itself."""
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _refuse_many(what: str, number: int) -> None:
    if number > MOST_POINTS:
        raise InputError(f"vary: {what} has {number:.3g} points, more than {MOST_POINTS:,}; use larger steps")

"""Turns pydantic's errors on a file into lines that name field, value and remedy, and the field that may be meant."""

import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from provision.models.base.register import did_you_mean
from provision.models.performance.catalogue import KINDS

MOST_LINES = 10
MOST_FIELDS = 6
"""The most fields of a record that one line names."""
QUOTE = "'"
REMEDIES = {
    "extra_forbidden": "remove it or check its spelling",
    "missing": "add it",
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "string_type": "write text, in quotes if need be",
    "bool_type": "write true or false",
    "finite_number": "write the number that you mean",
}
WORDS = {"extra_forbidden": "unknown field", "missing": "is missing"}
FIELDS, LIST = "should be fields with values", "should be a list"
SHAPES = {
    "model_type": FIELDS, "model_attributes_type": FIELDS, "dataclass_type": FIELDS, "dict_type": FIELDS,
    "tuple_type": LIST, "list_type": LIST,
}
"""What a value should be, for errors whose message by pydantic names a type of Python."""
OWN = ("value_error", "union_tag_invalid", "union_tag_not_found")
"""Types of errors whose message already names the value."""


def complaints(error: ValidationError, kind: Any = None) -> list[str]:
    """Return one line for every problem; after MOST_LINES lines, a last line counts the others.

    Parameters
    ----------
    error
        The error that pydantic raised.
    kind
        The type that was expected, if known; its fields are suggested for misspelt ones.
    """
    problems = _misspelt(telling(error.errors(include_url=False)))
    lines = list(dict.fromkeys(_line(problem, kind) for problem in problems))
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"and {more} more"]


def telling(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without those that pydantic reports for a list only because some of its items are wrong."""
    return [
        one for one in errors
        if one["type"] != "too_short" or not any(_inside(other["loc"], one["loc"]) for other in errors)
    ]


def _misspelt(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without a missing field beside which exactly one unknown field stands: that one is probably the
    missing field, misspelt.
    """
    unknown = [one["loc"][:-1] for one in errors if one["type"] == "extra_forbidden"]
    missing = [one["loc"][:-1] for one in errors if one["type"] == "missing"]
    return [
        one for one in errors
        if one["type"] != "missing" or not unknown.count(one["loc"][:-1]) == missing.count(one["loc"][:-1]) == 1
    ]


def _inside(location: Sequence[Any], outer: Sequence[Any]) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _line(problem: ErrorDetails, kind: Any) -> str:
    return f"{_field(problem['loc'])}: {complaint(problem, kind)}".removeprefix(": ")


def complaint(problem: ErrorDetails, kind: Any) -> str:
    """What is wrong with a field, with the value and the remedy."""
    what, text = problem["type"], _message(problem)
    if what not in OWN and what not in WORDS:
        text += f" (got {_shown(problem['input'])})"
    if problem["input"] is None and what not in WORDS:
        text += "; nothing stands behind the field: fill it in, or leave the field out"
    elif what in REMEDIES:
        text += f"; {REMEDIES[what]}"
    elif meant := _in_percent(problem):
        text += f"; did you mean {meant:.6g}?"
    return text + (_shape(problem, kind) if SHAPES.get(what) == FIELDS else _meant(problem, kind))


def _shape(problem: ErrorDetails, kind: Any) -> str:
    """The end of a line that says what to write instead of a plain value: fields, and which fields there are."""
    models = _models_at(problem["loc"], kind)
    fields = {name: field for model in models for name, field in model.model_fields.items()}
    needed = [name for name, field in fields.items() if field.is_required()]
    value = problem["input"]
    if needed and isinstance(value, str | int | float) and not isinstance(value, bool):
        return f"; write {{{needed[0]}: {_shown(value).strip(QUOTE)}{', ...' if len(needed) > 1 else ''}}}"
    names = list(fields)[:MOST_FIELDS]
    return f"; its fields are {', '.join(names)}{', ...' if len(fields) > len(names) else ''}" if names else ""


def _message(problem: ErrorDetails) -> str:
    """The message of an error, in words of files instead of Python's types."""
    what, context = problem["type"], problem.get("ctx", {})
    if what == "union_tag_invalid":
        return f"{context['discriminator'].strip(QUOTE)} should be one of {context['expected_tags']} " \
               f"(got {context['tag']!r})"
    if what == "union_tag_not_found":
        return f"{context['discriminator'].strip(QUOTE)} is missing; add it"
    if what == "too_short":
        return f"should have at least {context['min_length']} entr{'y' if context['min_length'] == 1 else 'ies'}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return (WORDS | SHAPES).get(what, message)


def _in_percent(problem: ErrorDetails) -> float:
    """What may be meant by a part in place of a percentage, or by a percentage in place of a part; 0 if neither."""
    value, limits = problem["input"], problem.get("ctx", {})
    if not isinstance(value, int | float):
        return 0.0
    if "ge" in limits and value < 1 < limits["ge"] <= 100 * value:
        return 100.0 * value
    is_part = limits.get("le") == 1 or ("le" in limits and problem["loc"][-1] == "headroom")
    return value / 100 if is_part and value <= 100 else 0.0


def _meant(problem: ErrorDetails, kind: Any) -> str:
    """A suggestion of the field or value that a misspelt name may mean; empty if none is similar."""
    if problem["type"] == "extra_forbidden":
        return did_you_mean(problem["loc"][-1], _fields_beside(problem["loc"], kind))
    if problem["type"] == "literal_error" and str(problem["input"]).isdigit():
        return "; write a number without quotes" if isinstance(problem["input"], str) else ""
    if problem["type"] == "literal_error":
        return did_you_mean(problem["input"], re.findall(r"'([^']+)'", problem["ctx"]["expected"]))
    if problem["type"] == "union_tag_invalid":
        return did_you_mean(problem["ctx"]["tag"], re.findall(r"'([^']+)'", problem["ctx"]["expected_tags"]))
    return ""


def _fields_beside(location: Sequence[int | str], kind: Any) -> list[str]:
    """Names of the fields that are allowed at the end of a location."""
    return [name for model in _models_at(location[:-1], kind) for name in model.model_fields]


def _models_at(location: Sequence[int | str], kind: Any) -> list[type[BaseModel]]:
    """The record types that are allowed at a location; names of union members and list indices in the location are
    skipped.
    """
    models = list(_models(kind))
    for part in location:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        tagged = [model for model in models if part in _tags(model)]
        models = [one for field in fields for one in _models(field.annotation)] or tagged or models
    return models


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The record types that occur in a type annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    else:
        for part in get_args(kind):
            yield from _models(part)


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """The values that the field ``kind`` of a record type may have, by which the members of a union are told apart."""
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field else ()


def _field(location: Sequence[int | str]) -> str:
    """The path of a location, such as ``workloads[3].slo_ms``; names of union members are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in KINDS or path.startswith("workloads"):  # pydantic names the kind among the fields
            path += f".{part}" if path else str(part)
    return path


def _shown(value: object) -> str:
    """A value as Python writes it, shortened if it is long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    return short.repr(value)

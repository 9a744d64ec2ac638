"""Options as fields: a record states type, range, default and help of each once, and its parser follows."""

from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
)
from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Le, MaxLen
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

LAST = ("force", "as_json")
"""The fields that come last in the help."""
WORDS = {
    "float_parsing": "should be a number", "finite_number": "should be a number",
    "int_parsing": "should be a whole number", "string_too_short": "is empty", "greater_than": "should be above {gt:g}",
    "greater_than_equal": "should be at least {ge:g}", "less_than_equal": "should be at most {le:g}",
    "value_error": "{error}",
}
"""What is said of a value, by pydantic's type of error."""


@dataclass(frozen=True)
class Argument:
    """How a field stands on the command line and in jobs of the service.

    Attributes
    ----------
    metavar
        What the help shows for the value.
    flag
        The flag; ``--`` for that of the field's name, empty for an operand, None for a field that jobs alone have.
    local
        Whether the command line alone has the field, such as a file to write.
    writes
        What is written to the path that the field gives: "file" or "picture"; empty if the field gives no such path.
    most, remote
        The most that jobs may ask for (a number, or a length); the field's type in jobs, None for that of the field.
    more
        Further settings for argparse.
    """

    metavar: str | None
    flag: str | None = ""
    local: bool = False
    most: float | None = None
    remote: Any = None
    more: dict[str, Any] = field(default_factory=dict)
    writes: str = ""

    def __call__(self, schema: dict[str, Any]) -> None:
        """Pydantic calls this for the JSON Schema of the field; nothing is added."""


def operand(metavar: str, text: str, default: Any = ..., remote: Any = None, local: bool = False, **more: Any) -> Any:
    """A field that stands on the command line without a flag."""
    return Field(default, description=text, json_schema_extra=Argument(metavar, "", local, remote=remote, more=more))


def option(default: Any, metavar: str | None, text: str, flag: str | None = "--", local: bool = False,
           most: float | None = None, remote: Any = None, **more: Any) -> Any:
    """A field with a flag, by default that of its name. A default of ``...`` makes it required."""
    return Field(default, description=text, json_schema_extra=Argument(metavar, flag, local, most, remote, more))


def local(default: Any, metavar: str | None, text: str, flag: str = "--", **more: Any) -> Any:
    """An option of the command line that jobs do not have."""
    return option(default, metavar, text, flag, local=True, **more)


def written(text: str, flag: str = "--", default: Any = None, what: str = "file") -> Any:
    """An option that names a file to write; ``what`` is "picture" for one that is drawn."""
    return Field(default, description=text, json_schema_extra=Argument("F", flag, True, writes=what))


FORCE = local(False, None, "overwrite files that exist")


def arguments(kind: type[BaseModel]) -> dict[str, tuple[FieldInfo, Argument]]:
    """The fields of a record that are arguments, in the order of the help: operands, then options, a class's own before
    those of its bases.
    """
    owners = reversed([*enumerate(kind.__mro__)])
    owner = {name: at for at, one in owners for name in vars(one).get("__annotations__", ())}
    found = [(name, one, one.json_schema_extra) for name, one in kind.model_fields.items()]
    stated = {name: (one, extra) for name, one, extra in found if isinstance(extra, Argument)}
    def place(name: str) -> tuple[bool, bool, int]:
        is_option = stated[name][1].flag != ""
        return name in LAST, is_option, owner[name] * is_option

    return {name: stated[name] for name in sorted(stated, key=place)}


def declare(parser: ArgumentParser, kind: type[BaseModel]) -> None:
    """Declare the arguments of a record on a parser. Those of a base with a ``group`` stand under that title."""
    groups: dict[str, Any] = {}
    for name, (one, argument) in arguments(kind).items():
        owner = next(base for base in kind.__mro__ if name in vars(base).get("__annotations__", ()))
        titled = (base for base in kind.__mro__ if "group" in vars(base) and issubclass(base, owner))
        title = next((vars(base)["group"] for base in titled), None)
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        if argument.flag is not None:
            _add(groups.get(title or "", parser), name, one, argument)


def given(kind: type[BaseModel], options: Namespace) -> dict[str, Any]:
    """The parsed options that are fields of ``kind``."""
    return {name: value for name, value in vars(options).items() if name in kind.model_fields}


class _Pairs(Action):
    """The action of an option ``NAME=VALUE`` that may be repeated; it makes a mapping."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
                 ) -> None:
        pairs = dict(getattr(namespace, self.dest, {}))
        name, value = values
        if name in pairs:
            raise ArgumentError(self, f"{name} is given twice; keep one")
        setattr(namespace, self.dest, pairs | {name: value})


def _add(parser: Any, name: str, one: FieldInfo, argument: Argument) -> None:
    kind, more = _without_none(one.annotation), dict(argument.more)
    more |= {"help": (one.description or "").replace("%", "%%") + _default(one), "default": SUPPRESS}
    if argument.flag:
        more["dest"] = name
        if one.is_required():
            more["required"] = True
    if kind is bool:
        more.setdefault("action", "store_true" if kind is one.annotation else BooleanOptionalAction)
    else:
        if argument.metavar is not None:
            more["metavar"] = argument.metavar
        if get_origin(kind) is dict:
            more |= {"action": _Pairs, "type": _pair(kind, argument.metavar or "NAME=VALUE")}
        elif get_origin(kind) is Literal:
            more.setdefault("choices", get_args(kind))
        elif kind is not str:
            more.setdefault("type", _reader(one, "action" in more or "nargs" in more))
    parser.add_argument(flag_of(name, argument) if argument.flag else name, **more)


def flag_of(name: str, argument: Argument) -> str:
    """The flag of a field: that stated, or that of its name without the unit of seconds."""
    return argument.flag or "" if argument.flag != "--" else f"--{name.removesuffix('_s').replace('_', '-')}"


def _default(one: FieldInfo) -> str:
    """The default of a field as the end of its help; empty if it says nothing or the help tells it."""
    value = one.default
    if one.is_required() or value is None or isinstance(value, bool) or value in ((), {}, "") \
            or "(default" in (one.description or ""):
        return ""
    several = value if isinstance(value, tuple) else (value,)
    return f" (default: {','.join(f'{one:g}' if isinstance(one, float) else str(one) for one in several)})"


def _without_none(annotation: Any) -> Any:
    """A type without None among what it may be, and without its limits."""
    if get_origin(annotation) in (Union, UnionType):
        rest = [one for one in get_args(annotation) if one is not NoneType]
        return _without_none(rest[0]) if len(rest) == 1 else annotation
    return _without_none(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


def limited(one: FieldInfo, most: float | None = None) -> Any:
    """The type of a field with its limits, and perhaps one more: the most that it may be, or contain."""
    several = get_origin(one.annotation) in (tuple, dict)
    limits = [*one.metadata, *(() if most is None else (MaxLen(int(most)) if several else Le(most),))]
    annotated: Any = Annotated
    return annotated[(one.annotation, *limits)] if limits else one.annotation


def _reader(one: FieldInfo, item: bool) -> Callable[[str], Any]:
    """The function that reads a field from a text, or an item of a field that has several. Several values in one text
    have commas between them.
    """
    def read(text: str) -> Any:
        kind = _without_none(one.annotation)
        if get_origin(kind) is not tuple:
            return _read(limited(one), text)
        if item:
            return _read(get_args(kind)[0], text)
        return tuple(_read(get_args(kind)[0], part.strip()) for part in text.split(","))

    return read


def _pair(kind: Any, metavar: str) -> Callable[[str], tuple[str, Any]]:
    """The function that reads a name and a value with ``=`` between them."""
    def read(text: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ArgumentTypeError(f"write it as {metavar} (got {text!r})")
        return name, _read(get_args(kind)[1], value)

    return read


def _read(kind: Any, text: str) -> Any:
    try:
        return TypeAdapter(kind).validate_strings(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = WORDS[first["type"]].format(**first.get("ctx", {})) if first["type"] in WORDS else first["msg"]
        raise ArgumentTypeError(f"{said.replace('Input should', 'should')} (got {text!r})") from None

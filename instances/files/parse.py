"""Parses YAML and JSON strictly.

Duplicate keys, deep nesting, and aliases that expand a short file to a huge one are refused.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import yaml

from provision.models.base.errors import InputError
from provision.models.base.objects import uncollected

DEEPEST = 100
"""The most levels of nesting; a sensible file has far fewer."""
TOO_DEEP = f"more than {DEEPEST} levels of nesting; write it flatter"

MOST_VALUES = 1_000_000
"""The most values in a YAML file; reading more takes minutes."""

MOST_EXTRA = 1_000_000
"""The most values that aliases may add to those that are written out."""

NUMBERS = {
    "tag:yaml.org,2002:int": (r"[-+]?(?:0|[1-9][0-9_]*)$", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$|[-+]?(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+)$"
        r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$",
        "-+.0123456789",
    ),
}
"""Patterns of numbers and their first characters, by YAML's tag.

1e3 is a number; 010 (octal) and 1:30 (base 60) remain text, which number fields refuse. No two neighbouring
repetitions can match the same characters: otherwise the time for a long text grows with the square of its length.
"""
MOST_DIRECTIVES = 100
"""The most %TAG directives in a YAML file; PyYAML compares each with all others."""
TEXT = "tag:yaml.org,2002:str"


def parse(path: object, text: str, rows: bool = False) -> Any:
    """Parse the text of a YAML file, or of a JSON file if the suffix is ``.json``; it must hold a mapping, or with
    ``rows`` a list. Raises InputError if the text is not well-formed, does not hold a mapping or list, or expands
    beyond the limits above.
    """
    content = _parse_json(path, text) if str(path).endswith(".json") else _parse_yaml(path, text)
    if rows and not isinstance(content, list):
        raise InputError(f"{path}: holds {_kind(content)}, not a list of rows; begin each with a dash")
    if not rows and not isinstance(content, dict):
        raise InputError(f"{path}: holds {_kind(content)}, not fields with values; `provision schema instance` (plan, "
                         "performance) tells the fields")
    return content


class _Loader(yaml.CSafeLoader):
    """A YAML loader with plain numbers, no duplicate keys, no merging of mappings, and bounded depth."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the class attribute that PyYAML reads
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in NUMBERS]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    depth = values = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Count a level of nesting down and one value more.

        PyYAML's composer calls this before each child; without a limit its recursion overflows the stack.
        """
        self.depth += 1
        self.values += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(problem=TOO_DEEP)
        if self.values > MOST_VALUES:
            raise yaml.composer.ComposerError(problem=f"more than {MOST_VALUES} values; write it as .json instead")

    def ascend_resolver(self) -> None:
        """Count a level of nesting up; PyYAML's composer calls this after each child."""
        self.depth -= 1

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct the value of a node; for text, by far the most frequent type, PyYAML's look-ups are skipped."""
        if node.tag == TEXT and isinstance(node, yaml.ScalarNode):
            return node.value
        return super().construct_object(node, deep)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key_node.tag == "tag:yaml.org,2002:bool":  # YAML 1.1 takes the name `on` for true
                key_node.tag = TEXT
            if key_node.tag == "tag:yaml.org,2002:merge":
                problem = "<< merges mappings; write the fields out"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key_node.start_mark)
            if key in seen:
                problem = f"key {key!r} stands twice; keep one"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _whole_number(loader: Any, node: Any) -> int:
    """The value of a decimal integer. PyYAML's own function takes quadratic time, for base 60 (1:30)."""
    return int(loader.construct_scalar(node).replace("_", ""))


def _number(loader: Any, node: Any) -> float:
    """The value of a decimal number; YAML writes infinity and "not a number" with a dot before the word."""
    return float(re.sub(r"\.(?=inf|nan)", "", loader.construct_scalar(node).replace("_", "").lower()))


for _tag, (_pattern, _first) in NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))
    _Loader.add_constructor(_tag, _whole_number if _tag.endswith("int") else _number)


def _parse_yaml(path: object, text: str) -> Any:
    if len(re.findall("[\r\n\x85\u2028\u2029]%TAG", text)) > MOST_DIRECTIVES:
        raise InputError(f"{path}: more than {MOST_DIRECTIVES} %TAG directives; write it without tags")
    try:
        with uncollected():
            content = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        # Newer versions of the C library have a limit on nesting of their own, which they may reach before ours.
        problem = TOO_DEEP if "nesting" in str(error.problem) else error.problem
        raise InputError(f"{path}{line}: not well-formed YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not well-formed YAML: {error}") from None
    _refuse_bombs(path, text, content)
    return content


def _parse_json(path: object, text: str) -> Any:
    try:
        with uncollected():
            content = json.loads(text, object_pairs_hook=_no_key_twice)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not well-formed JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{path}: {TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"{path}: not well-formed JSON: {error}") from None
    _refuse_depth(path, content)
    return content


def _no_key_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        times = Counter(key for key, _ in pairs)
        raise ValueError(f"key {max(times, key=times.__getitem__)!r} stands twice; keep one")
    return content


def _refuse_depth(path: object, content: object) -> None:
    """Refuse content with more than DEEPEST levels; the values in the innermost lists and mappings are one, too.

    The levels are visited one after another, without recursion, so that no depth overflows the stack.
    """
    level = [content]
    for _ in range(DEEPEST - 1):
        level = [
            child for node in level if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, (dict, list))
        ]
    if any(level):
        raise InputError(f"{path}: {TOO_DEEP}")


def _refuse_bombs(path: object, text: str, content: object) -> None:
    """Refuse aliases that expand a short file to a huge one, or that contain themselves.

    Every value that is written out takes at least one character, so the length of the text bounds their number.
    """
    try:
        if _size(content, {}) > len(text) + MOST_EXTRA:
            raise InputError(f"{path}: aliases add more than {MOST_EXTRA} values; write it without aliases")
    except RecursionError:
        raise InputError(f"{path}: aliases lead back to themselves; write it without aliases") from None


def _size(node: object, known: dict[int, int]) -> int:
    """The number of values in a tree, with aliases expanded; a node that occurs several times is computed once."""
    if not isinstance(node, (dict, list)):
        return 1
    if id(node) not in known:
        children = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]


def _kind(content: object) -> str:
    """What a file holds instead of fields, in words."""
    return {type(None): "nothing", str: "text", list: "a list", dict: "fields"}.get(type(content), "a single value")

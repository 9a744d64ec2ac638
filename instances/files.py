"""Files in and out: strict YAML and JSON, one line for whatever is wrong, nothing lost on writing."""

import json
import os
import re
import tempfile
from pathlib import Path

import yaml
from pydantic import ValidationError

from provision.models.errors import InputError

MOST_BYTES = 256 * 2**20
MOST_NODES = 20_000_000
"""Largest content, aliases followed, that is still taken for a file somebody meant."""


class _Loader(yaml.CSafeLoader):
    """YAML without surprises: a key that stands twice is an error, 1e3 is a number."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def load(path):
    """The content of a YAML or JSON file (by suffix ``.json``) as plain objects.

    Raises
    ------
    InputError
        When it is missing, unreadable, too large, or not well-formed.
    """
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise InputError(f"{path}: larger than {MOST_BYTES // 2**20} MiB; this is hardly the file you meant")
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; expected YAML or JSON in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if "\x00" in text:
        raise InputError(f"{path}: not a text file; expected YAML or JSON in UTF-8")
    content = _parse_json(path, text) if str(path).endswith(".json") else _parse_yaml(path, text)
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {_kind(content)}, not a mapping; expected fields such as 'version: 1'")
    _refuse_bombs(path, content)
    return content


def validate(kind, content, where):
    """An object of a pydantic class from plain content.

    Raises
    ------
    InputError
        With the first thing that is wrong: file, field, value, problem.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error)}") from None


def write_text(path, text, force=False):
    """Write a file as a whole or not at all.

    Raises
    ------
    InputError
        When it exists and ``force`` is not set, or cannot be written.
    """
    path = Path(path)
    if path.exists() and not force:
        raise InputError(f"{path}: exists already; choose another name or add --force")
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def dump(record, path):
    """The text of a record for a file of this name: JSON for ``.json``, else YAML."""
    content = record.model_dump(mode="json", exclude_none=True)
    if str(path).endswith(".json"):
        return json.dumps(content, indent=1) + "\n"
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)


def _parse_json(path, text):
    def no_key_twice(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{path}: key {twice!r} stands twice; keep one")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=no_key_twice)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not well-formed JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be what was meant") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not well-formed JSON: {error}") from None


def _parse_yaml(path, text):
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{path}{line}: not well-formed YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not well-formed YAML: {_one_line(error)}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be what was meant") from None


def _refuse_bombs(path, content):
    """Refuse content that a few aliases blow up to millions of nodes."""
    left, pending = MOST_NODES, [content]
    while pending:
        node = pending.pop()
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        left -= len(children)
        if left < 0:
            raise InputError(f"{path}: more than {MOST_NODES} values, aliases followed; write it without aliases")
        pending.extend(children)


def _first_problem(error):
    """One line for the first error that pydantic found, and how many more there are."""
    problems = error.errors(include_url=False)
    first = problems[0]
    field = _field(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        text = f"{field}: unknown field; remove it or check its spelling"
    elif first["type"] == "missing":
        text = f"{field}: missing; add it"
    elif first["type"] in ("value_error", "union_tag_invalid", "union_tag_not_found"):
        text = f"{field}: {message}" if field else message
    else:
        text = f"{field}: {message} (got {_shown(first['input'])})"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _one_line(text) + more


def _field(location):
    """A path such as ``workloads[3].slo_ms``; names of union members are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in ("measured-segments", "closed-network", "igniter"):
            path += f".{part}" if path else str(part)
    return path


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text):
    return " ".join(str(text).split())


def _kind(content):
    return "nothing" if content is None else f"a {type(content).__name__}"

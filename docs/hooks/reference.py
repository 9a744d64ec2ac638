"""Pages of the site that are made at its build: notebooks, file formats, command line, Python names.

MkDocs calls ``on_files``. Each page comes from what the program itself uses: the JSON Schemas, the parsers of the
verbs and the public names of the package, so that no page can say anything else. Notebooks are those of ``examples/``,
run by the plugin that shows them.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

import provision
from provision.cli import parser
from provision.commands import VERBS

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "instances/schemas"
NOTEBOOKS = tuple(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "examples").glob("*.ipynb")))
BEFORE_PLUGINS = 100
KINDS = {
    "instance": "An instance states the problem: what must be served, on which GPUs, by which rules.",
    "performance": "Performance data tells how models behave on the slices of a GPU type.",
    "plan": "A plan tells what stands on every GPU: slices, replicas, batch sizes, processes, parts of the rates.",
}
HELP_WIDTH = "100"
COMMANDS = """# Command line

`provision VERB --help` prints what stands here. `--json` prints one object on stdout and nothing else. Nothing is
overwritten without `--force`.

Exit codes: 0 the answer is yes, 1 it is no (violated, infeasible, differs), 3 it is unknown (no plan found in the time
given, and no proof that there is none), 2 the input cannot be used; then a line for every mistake says which file,
which field and what to do, with `--json` also an object `error` on stdout. 130: stopped by Ctrl-C; verbs that had
something to return by then return it.
"""
FUNCTIONS, CLASSES, ERRORS = "Functions", "What they take and return", "Errors"


@event_priority(BEFORE_PLUGINS)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the notebooks to those of the folder."""
    pages = {"files": file_formats(), "commands": command_line(), "python": python_names()}
    for name, text in pages.items():
        uri = f"reference/{name}.md"
        if stub := files.get_file_from_path(uri):
            files.remove(stub)  # what stands there where no site is built
        files.append(File.generated(config, uri, content=text))
    for name in NOTEBOOKS:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def file_formats() -> str:
    """Every field of every kind of file, from the JSON Schemas that ship."""
    parts = [
        "# File formats\n\nFiles are YAML or JSON. `provision schema instance|plan|performance` prints the JSON "
        "Schemas (draft 2020-12) from which this page is made; editors that know them complete and check fields.\n"
    ]
    seen: set[str] = set()
    for kind, text in KINDS.items():
        schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
        parts.append(f"## {kind.capitalize()}\n\n{text}\n")
        parts.append(_content(schema))
        for name, definition in sorted(schema["$defs"].items()):
            if name not in seen:
                seen.add(name)
                parts.append(f"### {name}\n\n{_prose(definition.get('description', ''))}\n\n{_content(definition)}")
    return "\n".join(parts)


def _content(schema: dict[str, Any]) -> str:
    """The fields of an object; of anything else its type."""
    return _fields(schema) if "properties" in schema else f"{_type(schema)}\n"


def _fields(schema: dict[str, Any]) -> str:
    """A table of the fields of an object."""
    required = schema.get("required", [])
    rows = [
        f"| `{name}` | {_type(field)} | {_default(name, field, required)} |"
        for name, field in schema["properties"].items()
    ]
    return "\n".join(["| field | type | default |", "|---|---|---|", *rows]) + "\n"


def _default(name: str, field: dict[str, Any], required: list[str]) -> str:
    """What a field is when it is left out."""
    if name in required:
        return "required"
    value = field.get("const", field.get("default"))
    return "" if value is None else f"`{json.dumps(value)}`"


def _type(field: dict[str, Any]) -> str:
    """The type of a field in words, with links to the kinds of objects."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for union in ("oneOf", "anyOf"):
        if union in field:
            return " or ".join(dict.fromkeys(_type(one) for one in field[union] if one.get("type") != "null"))
    if "const" in field or "enum" in field:
        return " or ".join(f"`{json.dumps(one)}`" for one in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return _array(field)
    if field.get("type") == "object" and "additionalProperties" in field:
        return f"map of names to {_type(field['additionalProperties'])}"
    return f"{field.get('type', 'anything')}{_limits(field)}"


def _array(field: dict[str, Any]) -> str:
    """A list in words: of one type, or of a fixed number of things."""
    if "prefixItems" in field:
        return f"[{', '.join(_type(one) for one in field['prefixItems'])}]"
    items = _type(field.get("items", {}))
    return f"list of ({items})" if " or " in items else f"list of {items}"


def _limits(field: dict[str, Any]) -> str:
    """The limits of a number."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field]
    return f" {', '.join(limits)}" if limits else ""


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its literals, and its numpydoc list of attributes as one."""
    text, _, attributes = docstring.replace("``", "`").partition("\nAttributes\n----------\n")
    names = re.sub(r"^(\S.*)\n    ", r"- `\1`: ", attributes, flags=re.MULTILINE)
    return f"{text.strip()}\n\n{names}".strip()


def command_line() -> str:
    """The help of every verb."""
    os.environ["COLUMNS"] = HELP_WIDTH
    lines = "\n".join(f"| [`{verb}`](#{verb}) | {text} |" for verb, (_, text) in VERBS.items())
    parts = [f"{COMMANDS}\n| verb | what it does |\n|---|---|\n{lines}\n"]
    parts += [f"{'#' * level} {name}\n\n```text\n{text}```\n" for level, name, text in _helps()]
    return "\n".join(parts)


def _helps() -> Iterator[tuple[int, str, str]]:
    """(level, name, help) of every verb and, below it, its formats."""
    for verb in VERBS:
        one = _children(parser(verb))[verb]
        yield 2, verb, one.format_help()
        for name, child in _children(one).items():
            yield 3, f"{verb} {name}", child.format_help()


def _children(one: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the verbs or formats of a parser."""
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def python_names() -> str:
    """Every public name of the package, for mkdocstrings to fill in."""
    groups: dict[str, list[str]] = {FUNCTIONS: [], CLASSES: [], ERRORS: []}
    for name in provision.__all__:
        thing = getattr(provision, name)
        is_error = isinstance(thing, type) and issubclass(thing, Exception)
        groups[ERRORS if is_error else CLASSES if isinstance(thing, type) else FUNCTIONS].append(name)
    parts = [
        "# Python\n\n```python\nimport provision\n```\n\nThese names are stable; modules below may move. "
        "The fields of instances and plans are those of their [files](files.md).\n"
    ]
    for title, names in groups.items():
        parts += [f"## {title}\n", *(f"::: provision.{name}\n" for name in names)]
    return "\n".join(parts)

"""Writes the pages of reference that are checked in: command line, file formats, Python names.

    python docs/reference/write_pages.py          writes all three, beside this file

Each page comes from what the program itself uses (the arguments of the verbs, the JSON Schemas, the public names of the
package), and a test holds the pages equal to it, so that no page can say anything else.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import provision
from provision.cli import parser
from provision.commands import GROUPS, JOBS
from provision.commands.verb import verb_class
from provision.models.base.arguments import arguments

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "instances/schemas"
KINDS = {
    "instance": "An instance states the problem: what must be served, on which GPUs, by which rules.",
    "performance": "Performance data tells how models behave on the slices of a GPU type.",
    "plan": "A plan tells what stands on every GPU: slices, replicas, batch sizes, processes, parts of the rates.",
}
COMMANDS = """# Command line

`provision --help` lists the verbs, `provision VERB --help` prints what stands here about one. `--json` prints one
object on stdout and nothing else; progress and remarks go to stderr. Nothing is overwritten without `--force`.

| exit code | means |
|---|---|
| 0 | yes: planned, holds, no difference, done |
| 1 | no: infeasible, violated, refuted, differs, late, worse; what is wrong is printed |
| 2 | the input cannot be used: a line for every mistake tells where and what to do; with `--json` an object `error` |
| 3 | unknown: the time ended without a plan and without a proof that there is none; `review`: a limit is exceeded |
| 128 + N | signal N ended it (130 is Ctrl-C, 143 SIGTERM); verbs that had something to return by then returned it |

The column *job* names the field in the request of a job, where the service offers the verb (`POST /api/v1/jobs` with
`{"verb": ...}`, [the service](../service.md)); the default and the range are the same.
"""
FUNCTIONS, CLASSES, ERRORS = "Functions", "What they take and return", "Errors"


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
    """Every verb with its arguments."""
    parts = [COMMANDS]
    for group, verbs in GROUPS.items():
        parts.append(f"## {group}\n")
        for verb in verbs:
            one = _children(parser(verb))[verb]
            parts.append(f"### {verb}\n\n{one.description}\n\n{_arguments(one, verb)}")
            parts += [f"#### {verb} {name}\n\n{_sentence(child.description or '')}\n\n{_arguments(child, verb)}"
                      for name, child in _children(one).items()]
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _arguments(one: argparse.ArgumentParser, verb: str) -> str:
    """The table of the arguments of a verb or format."""
    is_job = verb in JOBS
    head = ["| argument | what it is |" + (" job |" if is_job else ""), "|---|---|" + ("---|" if is_job else "")]
    fields = arguments(verb_class(verb))
    rows = [f"| {_named(action)} | {_cell(_text(action))} |" + (f" {_field(action.dest, fields)} |" if is_job else "")
            for action in one._actions if action.dest not in ("help", "format")]
    rows += [f"| | {_cell(field.description or '')} | `{name}` |" for name, (field, argument) in fields.items()
             if is_job and argument.flag is None]
    return "\n".join([*head, *rows]) + "\n"


def _named(action: argparse.Action) -> str:
    """An argument as it is written."""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    values = metavar or ("" if action.nargs == 0 or action.choices is None else "|".join(map(str, action.choices)))
    shown = ", ".join(f"`{option} {values}`" if values else f"`{option}`" for option in action.option_strings)
    return (shown or f"`{values}`").replace("|", "\\|")


def _text(action: argparse.Action) -> str:
    """The help of an argument."""
    default = "" if action.default is argparse.SUPPRESS else action.default
    required = " (required)" if action.required and action.option_strings else ""
    return (action.help or "") % {"default": default} + required


def _field(name: str, fields: dict[str, Any]) -> str:
    """The field of a job that an argument is; empty if jobs do not have it."""
    return "" if name not in fields or fields[name][1].local else f"`{name}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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


PAGES = {"commands": command_line, "files": file_formats, "python": python_names}

if __name__ == "__main__":
    for name, make in PAGES.items():
        Path(__file__).with_name(f"{name}.md").write_text(make(), encoding="utf-8")

"""JSON of other people's tools: lists and lines too, and one line for a field that is not as it should be."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provision.instances.files.files import read_text, refused
from provision.models.base.errors import InputError


def read_json(path: str | Path) -> Any:
    """Whatever a JSON file holds.

    Raises
    ------
    InputError
        When it cannot be read or is no JSON.
    """
    return parsed_json(f"{path}", read_text(path))


def parsed_json(where: str, text: str) -> Any:
    """Whatever a JSON text holds; ``where`` names it in the InputError if it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: not well-formed JSON: {error.msg}; export it again") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be what was meant; export it again") from None


@contextmanager
def written_by(tool: str, where: str) -> Iterator[None]:
    """Turn a missing field or a value of another kind into an InputError that names place and tool."""
    try:
        with refused(where):
            yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{where}: field {error} is missing; export it again with {tool}") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not as {tool} writes it: {error}; export it again") from None

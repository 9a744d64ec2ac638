"""Reads JSON of other tools, which need not be a mapping; a wrong field is reported in one line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provision.instances.files.files import read_text, refused
from provision.models.base.errors import InputError


def read_json(path: str | Path) -> Any:
    """Read the content of a JSON file, of any type. Raises InputError if the file cannot be read or is not JSON."""
    return parsed_json(f"{path}", read_text(path))


def parsed_json(where: str, text: str) -> Any:
    """The content of a JSON text, of any type; ``where`` names its place in the InputError if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: not well-formed JSON: {error.msg}; export it again") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be what was meant; export it again") from None


@contextmanager
def written_by(tool: str, where: str) -> Iterator[None]:
    """Turn the error of a missing or wrong field inside the block into an InputError that names the place and the tool.
    """
    try:
        with refused(where):
            yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{where}: field {error} is missing; export it again with {tool}") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not as {tool} writes it: {error}; export it again") from None

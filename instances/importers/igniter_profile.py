"""Imports iGniter's public profile."""

import json
from typing import Any

from pydantic import ValidationError

from provision.instances.files.files import FilePath, read_text, validate
from provision.instances.importers.importer import Imported, Importer, Source
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.fitting.igniter import IgniterMeasurements, fit
from provision.models.performance.igniter import IgniterProfiles

SOURCE = "Fitted by this package from iGniter's public V100 profile, github.com/icloud-ecnu/igniter."


def import_igniter(path: FilePath, gpu: str = "v100") -> IgniterProfiles:
    """Fit coefficients to a profile, which has one JSON object per line, ``{model or "hardware": {field: value}}``.

    Parameters
    ----------
    path
        The path of the profile.
    gpu
        The GPU type on which the profile was measured; the file does not tell it.

    Raises
    ------
    InputError
        If the file cannot be read, a field is missing or wrong, or no sensible coefficients fit.
    """
    measurements = read_profile(path)
    try:
        return fit(measurements, name=f"igniter-{gpu}", gpu=gpu, source=SOURCE)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: no sensible coefficients fit: {problem}; check the measurements") from None


def read_profile(path: FilePath) -> IgniterMeasurements:
    """Read the measurements of a profile. Raises InputError if the file cannot be read, or a field is missing or wrong.
    """
    parts = _merged(path)
    return validate(IgniterMeasurements, {"hardware": parts.pop("hardware", {}), "models": parts}, path)


def _merged(path: FilePath) -> dict[str, dict[str, Any]]:
    """The fields of a profile by model, put together from all its lines."""
    parts: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        for name, fields in _object(path, number, line).items():
            parts.setdefault(name, {}).update(fields)
    if not parts:
        raise InputError(f"{path}: is empty; expected one JSON object per line")
    return parts


def _object(path: FilePath, number: int, line: str) -> dict[str, dict[str, Any]]:
    """The object in one line, whose values are objects; an empty object for a blank line."""
    try:
        found = json.loads(line) if line.strip() else {}
    except ValueError as error:
        raise InputError(f"{path}:{number}: not well-formed JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{path}:{number}: nested too deeply to be what was meant") from None
    if not isinstance(found, dict) or not all(isinstance(fields, dict) for fields in found.values()):
        raise InputError(f"{path}:{number}: expected an object such as {{\"alexnet\": {{\"kernel\": 20}}}}")
    return found


class Igniter(Source):
    """iGniter's profile."""

    path: str = operand("JSONL", "the file to read")
    gpu: str = local("v100", "G", "measured on")

    def read(self) -> Imported:
        """Fit coefficients to the profile."""
        return Imported(import_igniter(self.path, self.gpu))


IMPORTER = Importer("a profile, as performance data fitted to it", Igniter)

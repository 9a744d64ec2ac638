"""Import of iGniter's public profile, and instances like those of its paper at any size."""

import json
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from provision.instances.files import validate
from provision.instances.shipped import shipped
from provision.models.errors import InputError
from provision.models.fit_igniter import IgniterMeasurements, fit

SOURCE = "Fitted by this package from iGniter's public V100 profile, github.com/icloud-ecnu/igniter."
TESTBED, INSS = "igniter-testbed-12", "inss"


def import_igniter(path, gpu="v100"):
    """Coefficients fitted to a profile: one JSON object per line, ``{model or "hardware": {field: value}}``.

    Parameters
    ----------
    path
        The profile.
    gpu
        The GPU type it was measured on; the file does not say.

    Raises
    ------
    InputError
        When the file cannot be read, a field is missing or wrong, or no sensible coefficients fit.
    """
    parts = _merged(path)
    content = {"hardware": parts.pop("hardware", {}), "models": parts}
    try:
        measurements = validate(IgniterMeasurements, content, path)
        return fit(measurements, name=f"igniter-{gpu}", gpu=gpu, source=SOURCE)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: no sensible coefficients fit: {problem}; check the measurements") from None


def generate(workloads, seed):
    """An instance of ``workloads`` workloads: those of the testbed in turn, rates times U(0.5, 1).

    Raises
    ------
    InputError
        When there is less than one workload or the seed is negative.
    """
    if workloads < 1 or seed < 0:
        raise InputError(f"{workloads} workloads, seed {seed}: give at least 1 workload and a seed from 0 on")
    testbed = shipped(TESTBED)
    factors = np.random.default_rng(seed).uniform(0.5, 1, workloads).tolist()
    rounds = [(*divmod(index, len(testbed.workloads)), factor) for index, factor in enumerate(factors)]
    return testbed.replace(
        name=f"igniter-{workloads}-seed{seed}",
        source=f"generated: the workloads of {TESTBED} in turn, rates times U(0.5, 1), seed {seed}",
        workloads=tuple(
            _varied(testbed.workloads[which], f"-{turn + 1}", factor) for turn, which, factor in rounds
        ),
    )


def generate_inss(seed):
    """A random state of the shipped ``inss``: rates times U(0.5, 1.5)."""
    inss = shipped(INSS)
    factors = np.random.default_rng(seed).uniform(0.5, 1.5, len(inss.workloads)).tolist()
    return inss.replace(
        name=f"{INSS}-seed{seed}",
        source=f"generated: {INSS}, rates times U(0.5, 1.5), seed {seed}",
        workloads=tuple(_varied(one, "", factor) for one, factor in zip(inss.workloads, factors, strict=True)),
    )


def _varied(workload, suffix, factor):
    """A workload of another name at a part of its rate."""
    return workload.model_copy(update={"name": workload.name + suffix, "rate_rps": workload.rate_rps * factor})


def _merged(path):
    """The lines of a profile put together, fields by model."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    parts = {}
    for number, line in enumerate(lines, start=1):
        for name, fields in _object(path, number, line).items():
            parts.setdefault(name, {}).update(fields)
    if not parts:
        raise InputError(f"{path}: is empty; expected one JSON object per line")
    return parts


def _object(path, number, line):
    """One line, an object of objects; a blank line is an empty one."""
    try:
        found = json.loads(line) if line.strip() else {}
    except ValueError as error:
        raise InputError(f"{path}:{number}: not well-formed JSON: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(fields, dict) for fields in found.values()):
        raise InputError(f"{path}:{number}: expected an object such as {{\"alexnet\": {{\"kernel\": 20}}}}")
    return found

"""Reads results of MLPerf Inference from a table, or from a submitter's tree of LoadGen's logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, text, whole
from provision.instances.files.files import FilePath, read_text
from provision.models.base.errors import InputError

COLUMNS = ("system", "model", "devices", "batch", "offline_sps")
NUMBERS = ("offline_sps", "server_qps", "latency_ms")
SUMMARY = "*/*/*/performance/run_1/mlperf_log_summary.txt"
"""Paths of LoadGen's summaries below ``results``; the first three folders are system, model and scenario."""
STREAMS = {"SingleStream": "90th percentile latency (ns)", "MultiStream": "99th percentile latency (ns)"}
"""The scenarios that send one query after another, and the latency that each of them reports."""
MIG_DEVICES, DEVICES = re.compile(r"MIG_(\d+)x"), re.compile(r"x(\d+)(?:_|$)")


class Result(NamedTuple):
    """One measurement of a model on a system.

    ``offline_sps`` and ``server_sps`` are samples per second of all ``devices``: with all samples sent at once, and
    under Poisson arrivals within the benchmark's latency limit. ``batch`` is None if unknown, ``latency_ms`` is None if
    only throughput was measured. ``origin`` is the round of the benchmark and the submitter, empty if unknown.
    """

    system: str
    model: str
    devices: int
    batch: int | None
    streams: int
    offline_sps: float | None
    server_sps: float | None = None
    latency_ms: float | None = None
    origin: str = ""


def read_results(
    path: FilePath, batches: Mapping[str, tuple[int, int]], devices: int | None = None
) -> list[Result]:
    """Read the results in a CSV file, or in a tree of LoadGen's summaries.

    Parameters
    ----------
    path
        A file with ``COLUMNS`` and, where known, ``streams``, ``server_qps``, ``latency_ms``, ``round`` and
        ``submitter``; or a submitter's folder ``results``.
    batches
        Batch size and streams by model, which the logs of the Offline and Server scenarios do not tell.
    devices
        The number of GPUs or MIG slices of the systems, if their names do not end in it (``x8``).

    Raises
    ------
    InputError
        If a file cannot be read, a run was not valid, or a number is wrong.
    """
    if Path(path).is_dir():
        found = list(_summaries(Path(path), batches, devices))
        if not found:
            raise InputError(f"{path}: no {SUMMARY} in it; name a submitter's folder 'results'")
        return found
    return [_row(path, line, row) for line, row in numbered_rows(path, COLUMNS)]


def parse_batches(given: str) -> dict[str, tuple[int, int]]:
    """Return batch and streams by model, from text like ``resnet50=32x1,bert-99=16x2``; without ``x`` there is one
    stream.

    Raises
    ------
    InputError
        If a part has another form.
    """
    found = {}
    for part in filter(None, given.split(",")):
        match = re.fullmatch(r"\s*([^=]+)=([1-9]\d{0,8})(?:x([1-9]\d{0,3}))?\s*", part)
        if not match:
            raise InputError(f"--batches {part!r}: write MODEL=BATCH or MODEL=BATCHxSTREAMS, with commas between")
        found[match[1]] = int(match[2]), int(match[3] or 1)
    return found


def _row(path: FilePath, line: int, row: CsvRow) -> Result:
    """The result in a row of the table."""
    cells = {name: number(path, line, row, name) for name in NUMBERS if row.get(name)}
    counts = {name: whole(path, line, row, name) for name in ("devices", "batch", "streams") if row.get(name)}
    if "devices" not in counts or min([*cells.values(), *counts.values()]) <= 0:
        raise InputError(f"{path}:{line}: devices, batch, rates and latency should be above 0; remove the row")
    return Result(
        text(path, line, row, "system"), text(path, line, row, "model"), counts["devices"], counts.get("batch"),
        counts.get("streams", 1), cells.get("offline_sps"), cells.get("server_qps"), cells.get("latency_ms"),
        ", ".join(row[name] for name in ("round", "submitter") if row.get(name)),
    )


def _summaries(folder: Path, batches: Mapping[str, tuple[int, int]], devices: int | None) -> Iterator[Result]:
    """Yield the results of a tree of summaries; the Offline and Server runs of a model on a system become one result.
    """
    joined: dict[tuple[str, str], Result] = {}
    for path in sorted(folder.glob(SUMMARY)):
        system, model, scenario = path.relative_to(folder).parts[:3]
        fields, count = _fields(path), devices or _devices(path, system)
        batch, streams = batches.get(model, (None, 1))
        start = Result(system, model, count, batch, streams, None)
        if scenario in STREAMS:
            samples = int(_value(path, fields, "samples_per_query"))
            yield start._replace(
                batch=samples, streams=1, latency_ms=_value(path, fields, STREAMS[scenario]) / 1e6,
                offline_sps=count * samples * 1e9 / _value(path, fields, "Mean latency (ns)"),
            )
            continue
        before = joined.get((system, model), start)
        if scenario == "Offline":
            joined[system, model] = before._replace(offline_sps=_value(path, fields, "Samples per second"))
        elif scenario == "Server":
            rate_sps = _value(path, fields, "Scheduled samples per second")
            joined[system, model] = before._replace(server_sps=rate_sps)
    yield from joined.values()


def _fields(path: Path) -> dict[str, str]:
    """The lines ``name : value`` of a summary as a dict; a summary of an invalid run is refused."""
    lines = (line.partition(":") for line in read_text(path).splitlines())
    fields = {name.strip(): value.strip() for name, colon, value in lines if colon}
    if fields.get("Result is") != "VALID":
        raise InputError(f"{path}: result is {fields.get('Result is', 'not stated')}, not VALID; remove the run")
    return fields


def _value(path: Path, fields: Mapping[str, str], name: str) -> float:
    """The value of a field that a summary must have, a number above 0."""
    try:
        value = float(fields[name])
    except (KeyError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"{path}: {name} should be a number above 0 (got {fields.get(name)!r}); remove the run")
    return value


def _devices(path: Path, system: str) -> int:
    """The number of GPUs or MIG slices of a system, from its name."""
    found = MIG_DEVICES.search(system) or DEVICES.search(system)
    if not found or int(found[1]) < 1:
        raise InputError(f"{path}: the name {system!r} does not say how many GPUs it has; give --devices N")
    return int(found[1])

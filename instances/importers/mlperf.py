"""Reads results of MLPerf Inference from a table, or from a submitter's tree of LoadGen's logs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, text, whole
from provision.instances.files.files import FilePath, read_text, refused
from provision.instances.importers.importer import Imported, Importer, Source
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import PositiveCount
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.fitted_networks import FittedError, fitted_error, relative_errors
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

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


def read_results(path: FilePath, batches: Mapping[str, tuple[int, int]], devices: int | None = None) -> list[Result]:
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
    stream. Raises InputError if a part has another form.
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


PROFILE = re.compile(r"MIG_\d+x(\d+g\.\d+gb)")
"""The part of a system's name that tells its MIG slices, such as ``MIG_56x1g.10gb``."""
DIGITS = 8
"""Significant digits of numbers in the written file."""
Scenario = Literal["offline", "server"]


def import_mlperf(path: FilePath, gpu: str, systems: Sequence[str], *, scenario: Scenario = "offline",
                  check: Sequence[str] = (), batches: Mapping[str, tuple[int, int]] | None = None,
                  devices: int | None = None, command: str = "") -> MeasuredSegments:
    """Make measured segments of a GPU type from MLPerf's results.

    Parameters
    ----------
    path
        The CSV file of results, or a submitter's folder ``results``.
    gpu
        The GPU type of the systems; their names do not tell it in a uniform way.
    systems
        Names of the systems to use, each with slices of another profile.
    scenario
        ``offline``, or ``server`` if the batch sizes are those of the server's configuration.
    check
        Further systems with the same GPU; the difference of their throughput per device becomes the ``error``.
    batches, devices
        Passed to ``read_results``.
    command
        The command that made the file, to be written into it.

    Raises
    ------
    InputError
        If a system is not in the file, a row cannot be used, or two systems measured the same.
    """
    results = read_results(path, batches or {}, devices)
    known = sorted({result.system for result in results})
    for name in (*systems, *check):
        if name not in known:
            raise InputError(f"{path}: no system {name!r}; there is {', '.join(known)}{did_you_mean(name, known)}")
    taken = [result for result in results if result.system in systems]
    points: dict[str, list[MeasuredPoint]] = {}
    for result in taken:
        if (point := _point(result, gpu, scenario)) is not None:
            points.setdefault(result.model, []).append(point)
    if not points:
        raise InputError(f"{path}: no {scenario} result of {', '.join(systems)} has a batch; say it with --batches")
    origins = sorted({f" {result.origin}" for result in taken if result.origin})
    source = (
        f"MLPerf Inference{';'.join(origins)} (Apache-2.0): {scenario} scenario, {', '.join(systems)}. Latency is "
        "batch over throughput, and as measured where queries came one after another."
    )
    with refused(path):
        models = {name: MeasuredModel(points=table) for name, table in points.items()}
        return MeasuredSegments(
            version=1, name=f"mlperf-{gpu}", kind="measured-segments", gpu=gpu, source=source, models=models,
            command=command, error=_error(taken, [result for result in results if result.system in check]),
        )


def _point(result: Result, gpu: str, scenario: Scenario) -> MeasuredPoint | None:
    """The measured point of a result; None if the batch size or the scenario's rate is not known."""
    all_sps = result.offline_sps if scenario == "offline" or result.latency_ms is not None else result.server_sps
    if result.batch is None or all_sps is None:
        return None
    rps = all_sps / result.devices
    latency_ms = result.latency_ms or 1000 * result.batch * result.streams / rps
    rps, latency_ms = (float(f"{value:.{DIGITS}g}") for value in (rps, latency_ms))
    return MeasuredPoint(_profile(result.system, gpu), result.batch, result.streams, rps, latency_ms)


def _error(taken: Iterable[Result], checked: Iterable[Result]) -> FittedError | None:
    """The relative differences between the best offline throughput per device of two groups of systems.

    They are compared by model and profile; None if the groups have no model and profile in common.
    """
    best, others = _best(taken), _best(checked)
    same = sorted(best.keys() & others.keys())
    if not same:
        return None
    return fitted_error(relative_errors([best[key] for key in same], np.array([others[key] for key in same])))


def _best(results: Iterable[Result]) -> dict[tuple[str, str], float]:
    """The highest offline throughput per device, samples/s, by model and profile."""
    found: dict[tuple[str, str], float] = {}
    for result in results:
        if result.offline_sps is not None:
            match = PROFILE.search(result.system)
            key = result.model, match[1] if match else WHOLE
            found[key] = max(found.get(key, 0.0), result.offline_sps / result.devices)
    return found


def _profile(system: str, gpu: str) -> str:
    """The profile of a system's slices, from the system's name; the whole GPU if the name has no MIG slices."""
    found = PROFILE.search(system)
    if found and found[1] not in gpu_type(gpu).profiles:
        raise InputError(f"{system}: {gpu} has no profile {found[1]}; name the GPU type that was measured")
    return found[1] if found else WHOLE


class MlPerf(Source):
    """Results of MLPerf Inference."""

    path: str = operand("PATH", "the file to read")
    gpu: str = local(..., "TYPE", "measured on")
    system: tuple[str, ...] = local(..., "S", "take this system's rows (once per profile)", action="append")
    scenario: Scenario = local("offline", None, "whose throughput is a point's; server is the safe one where the batch "
                                                "is the server's")
    check: tuple[str, ...] = local((), "S", "another system with this GPU: how far its throughput lies from the points "
                                            "is stated as their error", action="append")
    batches: str = local("", "MODEL=BxS,...", "batch and streams, which LoadGen's logs do not say")
    devices: PositiveCount | None = local(None, "N", "GPUs or slices of the systems, if not in their names")

    def read(self) -> Imported:
        """Read a table, or a submitter's tree."""
        chosen = "".join(f" --{name} {one}" for name in ("system", "check") for one in getattr(self, name))
        table = import_mlperf(
            self.path, self.gpu, self.system, scenario=self.scenario, check=self.check,
            batches=parse_batches(self.batches), devices=self.devices,
            command=f"provision import mlperf {self.path} --gpu {self.gpu} --scenario {self.scenario}{chosen}",
        )
        if table.error is None:
            return Imported(table)
        told = (f"throughput per GPU of {', '.join(self.check)}: {table.error.mean:.1%} away on average, at most "
                f"{table.error.max:.1%}, over {table.error.points} models")
        return Imported(table, (told,))


IMPORTER = Importer("results of MLPerf Inference, as a table", MlPerf)

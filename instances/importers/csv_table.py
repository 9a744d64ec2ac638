"""Imports a user's own measurements: a CSV file with a row per run of a point, in the user's names and units."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from provision.instances.files.csv_cells import CsvRow, header, number, numbered_rows, refuse_rows, text, whole
from provision.instances.files.files import FilePath, refused
from provision.instances.importers.completion import KNOWN_GPU, completion
from provision.instances.importers.importer import Imported, Importer, Source, contradiction, warnings
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag
from provision.models.base.register import did_you_mean
from provision.models.fitting.left_out import quantiles
from provision.models.fitting.waves import between_error
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.bands import ErrorBands, SeenErrors
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

NEEDED = ("batch", "latency_ms")
OPTIONAL = ("profile", "processes", "throughput_rps", "model", "memory_gib", "spread_ms")
FIELDS = (*NEEDED, *OPTIONAL)
OTHER_UNITS = {f"{what}_{unit}": f"{what}_ms" for what in ("latency", "spread") for unit in ("us", "s")}
"""Fields of times in other units than ms, with the fields that they stand for."""
UNITS = r"(_?\(?ms|(_|_?\()(us|µs|μs|usec|microseconds|s|sec|seconds))\)?"
ALIASES = {
    "batch": r"batch(_?size)?|batchgr(ö|oe)(ß|ss)e|bs|b",
    "latency_ms": rf"((p99|avg|mean)_?)?(lat(ency)?|latenz)({UNITS})?(_?p99)?|p99({UNITS})?|time{UNITS}|ms",
    "profile": r"(mig_?)?profile|mig",
    "processes": r"proc(esse)?s|instances|mps",
    "throughput_rps": r"throughput(_?rps)?|rps|qps|inferences/second",
    "model": r"modell?(_?name)?|dnn|network",
    "memory_gib": r"mem(ory)?_gib",
    "spread_ms": r"(spread|std(dev)?)_ms",
}
"""The pattern of the names that the column of a field may have, in lower case and with underscores for spaces."""
REMEDY = "; say what yours are called, as in --columns batch=B,latency_ms=L"
SPREADS = 2.0
"""How many standard deviations (``spread_ms``) are added to the mean latency of a batch."""
LEAST_RUNS = 5
"""The number of measurements from which a slice type and batch size have a band of their own."""
APART = 2.0
"""How many times the shortest of several times of a point the longest may be, where a column of words is not used."""
UNIT = re.compile(r"(?:^|[\s_(\[])(?:(us|µs|μs|usecs?|microseconds?)|(s|secs?|seconds?))[)\]]?(?:[\s_]*p99)?$")
"""The end of the name of a column of times that are in microseconds or in seconds."""
Held = dict[tuple[str, str, int, int], float]
"""Measured memory in GiB by (model, profile, batch, processes)."""


def parse_columns(given: str) -> dict[str, str]:
    """Return the column of each field, from text like ``batch=B,latency_ms=L``; the column of other fields has their
    name. ``latency_us=L`` is the column of both ``latency_us`` and ``latency_ms``. Raises InputError if a field is
    unknown, or a part is not FIELD=COLUMN.
    """
    columns = {name: name for name in FIELDS}
    for part in filter(None, given.split(",")):
        field, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not column:
            raise InputError(f"--columns {part!r}: write FIELD=COLUMN, with commas between")
        if field not in (*FIELDS, *OTHER_UNITS):
            known = f"use one of {', '.join(FIELDS)}{did_you_mean(field, FIELDS)}"
            raise InputError(f"--columns {part!r}: unknown field {field!r}; {known}")
        columns[field] = columns[OTHER_UNITS.get(field, field)] = column
    return columns


def measured_columns(names: Iterable[str]) -> dict[str, str]:
    """The name of each field's column in a table; if several columns fit a field, the first."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[\s_]+", "_", name.strip().lower())
        for field, pattern in ALIASES.items():
            if re.fullmatch(pattern, plain):
                found.setdefault(field, name)
    return found


def read_as(columns: Mapping[str, str]) -> str:
    """A text that lists each column whose name differs from its field, with the field, and the factor that makes its
    times ms if that is not 1.
    """
    return ", ".join(f"{column} as {field}" + (f", times {factor:g}" if (factor := unit_ms(column)) != 1 else "")
                     for field, column in columns.items() if field != column)


def import_csv(path: FilePath, gpu: str, model: str, columns: Mapping[str, str], profile: str = WHOLE,
               interpolated: bool = True, completed: bool = False) -> MeasuredSegments:
    """Make measured segments from a table.

    Parameters
    ----------
    path
        The CSV file. The fields batch and latency_ms are needed, the others are optional. ``completion`` uses the
        memory; ``spread_ms`` makes batches longer (SPREADS). Of a point with several rows the mean counts, and the
        rows tell how far times vary (``repeated``).
    gpu, model, profile
        The GPU type, and the model and the slice's profile of rows that do not name them.
    columns
        Names of columns by field (FIELDS, OTHER_UNITS). Times are in the unit that the field's name, or else the
        column's, ends with (``unit_ms``).
    interpolated
        Whether plans may use batch sizes between the measured ones, if the error of the interpolation can be estimated.
    completed
        Whether points that were not measured are added from networks fitted to the measured ones (``completion``).

    Returns
    -------
    MeasuredSegments
        If the throughput was not measured, it is computed for processes that run batch after batch without a pause.

    Raises
    ------
    InputError
        If the file lacks a column, latencies contradict throughputs, or rows cannot be used; the message has a line for
        each of these rows.
    """
    rows = list(numbered_rows(path, [columns[name] for name in NEEDED], REMEDY))
    _refuse_absent(path, rows[0][1], columns)
    points: dict[str, list[MeasuredPoint]] = {}
    held: Held = {}
    wrong: list[str] = []
    for line, row in rows:
        try:
            name, point, memory_gib = _point(path, line, row, columns, (model, profile))
            points.setdefault(name, []).append(point)
            if memory_gib is not None:
                held[name, *point[:3]] = _fitting(path, line, gpu, point, memory_gib)
        except InputError as error:
            wrong.append(str(error))
    refuse_rows(path, wrong)
    _refuse_mixed(path, [row for _, row in rows], columns, points.values())
    with refused(path):
        models = {name: MeasuredModel(points=merged(table)) for name, table in points.items()}
        for name, measured in models.items():
            if told := contradiction(name, measured):
                raise InputError(f"{path}: {told}; name the unit at the end of the column of latencies: _us, _ms or _s")
        if completed:
            return completion(model, gpu, models, held)
        return MeasuredSegments(
            version=1, name=model, kind="measured-segments", gpu=gpu, source="own measurements", models=models,
            between_batches=between_error(models) if interpolated else None, bands=repeated(points),
        )


def unit_ms(column: str) -> float:
    """The milliseconds of a unit of a column, by the column's name; 1 if the name says nothing of seconds."""
    found = UNIT.search(column.strip().lower())
    return 1.0 if found is None else 0.001 if found[1] else 1000.0


def runs(table: Iterable[MeasuredPoint]) -> dict[tuple[str, int, int], list[MeasuredPoint]]:
    """The measurements by (profile, batch, processes); a point may have been measured several times."""
    found: dict[tuple[str, int, int], list[MeasuredPoint]] = {}
    for point in table:
        found.setdefault(point[:3], []).append(point)
    return found


def merged(table: Iterable[MeasuredPoint]) -> list[MeasuredPoint]:
    """Every point once, with the mean of its latencies and the throughput at the mean time per batch."""
    return [several[0]._replace(latency_ms=float(np.mean([one.latency_ms for one in several])),
                                throughput_rps=1 / float(np.mean([1 / one.throughput_rps for one in several])))
            if len(several) > 1 else several[0] for several in runs(table).values()]


def repeated(points: Mapping[str, list[MeasuredPoint]]) -> ErrorBands | None:
    """The bands of points that were measured several times: by model, and by slice type and batch size where these were
    measured at least LEAST_RUNS times. None if no point was measured twice.

    The logarithms of latencies over their mean are lengthened by sqrt(runs / (runs - 1)), since the mean is that of the
    same runs.
    """
    models = {}
    for name, table in points.items():
        spread: dict[tuple[str, int], list[float]] = {}
        for (profile, batch, _), several in runs(table).items():
            if len(several) > 1:
                latency_ms = np.array([one.latency_ms for one in several])
                logs = np.log(latency_ms / latency_ms.mean()) * math.sqrt(len(several) / (len(several) - 1))
                spread.setdefault((profile, batch), []).extend(logs.tolist())
        if spread:
            own = [_seen(logs, profile=profile, batches=(batch, batch))
                   for (profile, batch), logs in spread.items() if len(logs) >= LEAST_RUNS]
            models[name] = (_seen([one for logs in spread.values() for one in logs]), *own)
    return ErrorBands(source="Points that were measured more than once.", command="", models=models) if models else None


def _seen(logs: list[float], **where: Any) -> SeenErrors:
    return SeenErrors(points=len(logs), quantiles=quantiles(np.array(logs)), **where)


def _refuse_absent(path: FilePath, row: CsvRow, columns: Mapping[str, str]) -> None:
    """Refuse columns that the user named but that the file lacks."""
    for field, column in columns.items():
        if column not in row and column != field:
            there = f"it has {', '.join(row)}{did_you_mean(column, row)}"
            raise InputError(f"{path}: column {column!r} is missing; {there}")


def _refuse_mixed(path: FilePath, rows: list[CsvRow], columns: Mapping[str, str],
                  tables: Iterable[list[MeasuredPoint]]) -> None:
    """Refuse times of one point that are far apart if words in a column that is not used may name several models."""
    times = [[one.latency_ms for one in several] for table in tables for several in runs(table).values()]
    worst = max(times, key=lambda several: max(several) / min(several))
    words = [column for column in rows[0] if column not in columns.values()
             and all(any(letter.isalpha() for letter in row[column]) for row in rows)]
    if words and max(worst) > APART * min(worst):
        raise InputError(f"{path}: one batch size has times from {min(worst):g} to {max(worst):g} ms; if column "
                         f"{words[0]!r} names models, call it model (or say --columns model=...), else remove it")


def _fitting(path: FilePath, line: int, gpu: str, point: MeasuredPoint, memory_gib: float) -> float:
    """Return the memory of a point in GiB, after a check that the point's slice has that much."""
    kind = gpu_type(gpu)
    if point.profile in {WHOLE, *kind.profiles} and memory_gib > kind.slice_memory_gib(point.profile):
        room_gib = kind.slice_memory_gib(point.profile)
        raise InputError(f"{path}:{line}: memory_gib {memory_gib:g} is more than {point.profile} has, {room_gib:g}")
    return memory_gib


def _point(path: FilePath, line: int, row: CsvRow, columns: Mapping[str, str],
           default: tuple[str, str]) -> tuple[str, MeasuredPoint, float | None]:
    """The model, the measured point and the memory (GiB or None) of a row.

    ``default`` is (model, profile) of rows that do not name them.
    """
    there = {field: column for field, column in columns.items() if column in row}
    name = text(path, line, row, there["model"]) if "model" in there else default[0]
    profile = text(path, line, row, there["profile"]) if "profile" in there else default[1]
    batch = whole(path, line, row, there["batch"])
    processes = whole(path, line, row, there["processes"]) if "processes" in there else 1
    latency_ms = _time_ms(path, line, row, there, "latency_ms")
    if min(batch, processes, latency_ms) <= 0:
        raise InputError(f"{path}:{line}: batch, processes and latency_ms should be above 0; correct or remove the row")
    throughput_rps = 1000 * batch * processes / latency_ms
    if "throughput_rps" in there:
        throughput_rps = number(path, line, row, there["throughput_rps"])
    spread_ms = _time_ms(path, line, row, there, "spread_ms") if "spread_ms" in there else 0.0
    memory_gib = number(path, line, row, there["memory_gib"]) if "memory_gib" in there else None
    point = MeasuredPoint(profile, batch, processes, throughput_rps, latency_ms + SPREADS * spread_ms)
    return name, point, memory_gib


def _time_ms(path: FilePath, line: int, row: CsvRow, columns: Mapping[str, str], field: str) -> float:
    """The time in the column of a field, in ms."""
    stated = next((name for name, meant in OTHER_UNITS.items() if meant == field and name in columns), columns[field])
    return number(path, line, row, columns[field]) * unit_ms(stated)


class Csv(Source):
    """A table of own measurements."""

    path: str = operand("FILE", "the file to read")
    gpu: str = local(..., "TYPE", "measured on")
    model: str | None = local(None, "NAME", "what was measured, where no column does (default: FILE's name)")
    profile: str = local(WHOLE, "P", "MIG profile, where no column says so")
    columns: str = local("", "FIELD=COLUMN,...", f"names of the columns of {', '.join(FIELDS)}; also latency_us, _s")
    measured_only: Flag = local(False, None, "do not plan batches between the measured ones")
    complete: Flag = local(
        False, None, "add what was not measured, at the upper end of an interval: a network fitted to 3 points per "
        f"model or more, with the shipped ones as the prior ({KNOWN_GPU})")

    def read(self) -> Imported:
        """Read the table."""
        if self.measured_only and self.complete:
            raise InputError("--measured-only and --complete: use one of them")
        names, columns = header(self.path), parse_columns(self.columns)
        meant = {field: column for field, column in measured_columns(names).items()
                 if columns[field] == field not in names}
        given = self.gpu, self.model or Path(self.path).stem, columns | meant, self.profile
        table = import_csv(self.path, *given, not self.measured_only, self.complete)
        told = (f"read {read_as(meant)}",) if meant else ()
        return Imported(table, told + tuple(_told(table, self.complete)), tuple(warnings(table)))


def _told(table: MeasuredSegments, completed: bool) -> Iterator[str]:
    """Yield lines on what was added to the measurements, and on the error of the additions."""
    if completed:
        judged = "3 points of a model are too few to judge by" if table.error is None else (
            f"measured points left out in turn: mean error {table.error.mean:.1%}, p95 {table.error.p95:.1%}"
        )
        yield f"{sum(len(one.points) for one in table.models.values())} points with those of fitted networks; {judged}"
    if table.between_batches is not None:
        error = table.between_batches
        yield (
            f"between batches: mean error {error.mean:.1%}, p95 {error.p95:.1%}, over {error.points} of the measured "
            f"batches, each predicted from its neighbours; plans take {error.margin:.1%} longer there"
        )


IMPORTER = Importer("own measurements, a row per batch with its latency, as a table", Csv)

"""Imports the CSV files of two of Triton's tools: perf_analyzer and Model Analyzer.

*perf_analyzer* writes a file per batch size and number of processes, with times in us. Such a file tells neither the
model nor the slice, so its name must: ``MODEL_PROFILE_bBATCH_pPROCESSES.csv``, as in ``bert_2g.20gb_b8_p3.csv``. A row
with n requests in flight is a point with n processes if the file's number of processes is at least n; the other
processes idle. If more requests are in flight than there are processes, most of the latency is waiting; such rows are
dropped and reported.

*Model Analyzer* writes ``metrics-model-inference.csv``, with times in ms. Instances of a model are processes. Only rows
are used in which as many requests are in flight as there are instances. Of several configurations with the same batch
size and number of instances, the one with the highest throughput is used.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, whole
from provision.instances.files.files import FilePath, refused
from provision.instances.importers.importer import Imported, Importer, Source, warnings
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Count
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

NAME = re.compile(r"(?P<model>.+)_(?P<profile>[^_]+)_b(?P<batch>\d{1,9})_p(?P<processes>\d{1,9})")
EXAMPLE = "bert_2g.20gb_b8_p3.csv"
CONCURRENCY, THROUGHPUT = "Concurrency", "Inferences/Second"
US_PER_MS = 1000


def import_perf_analyzer(path: FilePath, gpu: str, percentile: int) -> tuple[MeasuredSegments, list[str]]:
    """Make measured segments from a file, or from all ``*.csv`` of a folder.

    Return the segments, and a line for every file with dropped rows.

    Parameters
    ----------
    path
        The file or folder.
    gpu
        The GPU type on which the models were measured.
    percentile
        The percentile of the request latency to use; the files must have its column.

    Raises
    ------
    InputError
        If there is no file, or a name, column or cell is wrong.
    """
    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.csv"))
    if not files:
        raise InputError(f"{path}: no *.csv in there; name a file or a folder of files like {EXAMPLE}")
    tables = [_Table(file, f"p{percentile} latency") for file in files]
    points: dict[str, dict[tuple[str, int, int], MeasuredPoint]] = {}
    for table in sorted(tables, key=lambda table: table.processes):
        known = points.setdefault(table.model, {})
        known |= {point[:3]: point for point in table.points if point.processes == table.processes
                  or point[:3] not in known}
    source = f"Triton perf_analyzer, p{percentile} latency at one request in flight per process."
    data = _segments(path, {model: found.values() for model, found in points.items()}, "perf-analyzer", source, gpu)
    return data, [line for table in tables for line in table.dropped]


class _Table:
    """One file: its ``model``, the ``processes`` in its name, its ``points``, and messages on its ``dropped`` rows."""

    def __init__(self, file: Path, latency: str) -> None:
        found = NAME.fullmatch(file.stem)
        if not found:
            told = "model, profile, batch and processes"
            raise InputError(f"{file}: the name must tell {told}; rename it like {EXAMPLE}")
        self.model, self.processes = found["model"], int(found["processes"])
        rows = list(numbered_rows(file, (THROUGHPUT, latency)))
        if CONCURRENCY not in rows[0][1]:
            wanted = f"measure with --concurrency-range {self.processes}"
            raise InputError(f"{file}: column {CONCURRENCY!r} is missing; {wanted}")
        levels = {whole(file, line, row, CONCURRENCY): (line, row) for line, row in rows}
        self.points = [
            MeasuredPoint(found["profile"], int(found["batch"]), level, number(file, line, row, THROUGHPUT),
                          number(file, line, row, latency) / US_PER_MS)
            for level, (line, row) in sorted(levels.items()) if 0 < level <= self.processes
        ]
        over = ", ".join(str(level) for level in sorted(levels) if level > self.processes)
        if not self.points:
            there = f"no row at {CONCURRENCY} {self.processes} or below, only {over}"
            raise InputError(f"{file}: {there}; measure that too")
        self.dropped = [f"{file}: dropped {CONCURRENCY} {over}: more requests in flight than processes "
                        f"({self.processes}), so that the latency is mostly waiting"] * bool(over)


class Measured(Source):
    """What a file of Triton's tools does not tell."""

    gpu: str = local(..., "G", "measured on")
    percentile: Count = local(99, "P", "of the latency")


class PerfAnalyzer(Measured):
    """Files of perf_analyzer."""

    path: str = operand("PATH", "the file to read")

    def read(self) -> Imported:
        """Read a file, or all of a folder."""
        table, dropped = import_perf_analyzer(self.path, self.gpu, self.percentile)
        return Imported(table, notes=(*dropped, *warnings(table)))


PERF_ANALYZER = Importer("files MODEL_PROFILE_bBATCH_pPROCESSES.csv, as a table", PerfAnalyzer)


MODEL, BATCH, SENT, INSTANCES = "Model", "Batch", "Concurrency", "Instance Group"
ANSWERED = "Throughput (infer/sec)"
GROUP = re.compile(r"(\d{1,9})[:/]\w+")
"""Matches one group of instances, such as 2:GPU."""


def import_model_analyzer(path: FilePath, gpu: str, profile: str, percentile: int) -> tuple[MeasuredSegments, int]:
    """Make measured segments from a table; return them and the number of rows that were left out.

    Parameters
    ----------
    path
        The CSV file.
    gpu, profile
        The GPU type and the profile of the slice on which the models were measured; the file does not tell them.
    percentile
        The percentile of the request latency to use; the table must have its column.

    Raises
    ------
    InputError
        If the file cannot be read or lacks a column, a cell is wrong, or no row can be used.
    """
    latency = f"p{percentile} Latency (ms)"
    rows = list(numbered_rows(path, (MODEL, BATCH, SENT, INSTANCES, ANSWERED, latency)))
    best: dict[tuple[str, int, int], MeasuredPoint] = {}
    counted = 0
    for line, row in rows:
        processes = _instances(path, line, row)
        if whole(path, line, row, SENT) != processes:
            continue
        counted += 1
        values = (number(path, line, row, column) for column in (ANSWERED, latency))
        point = MeasuredPoint(profile, whole(path, line, row, BATCH), processes, *values)
        key = row[MODEL], point.batch, processes
        best[key] = max(best.get(key, point), point, key=lambda one: one.throughput_rps)
    if not best:
        raise InputError(f"{path}: no row with as many requests in flight as instances; measure such {SENT}")
    models: dict[str, list[MeasuredPoint]] = {}
    for (model, _, _), point in best.items():
        models.setdefault(model, []).append(point)
    source = f"Triton Model Analyzer, p{percentile} latency at one request in flight per instance."
    return _segments(path, models, "model-analyzer", source, gpu), len(rows) - counted


def _instances(path: FilePath, line: int, row: CsvRow) -> int:
    found = GROUP.fullmatch((row[INSTANCES] or "").strip())
    if not found:
        raise InputError(f"{path}:{line}: {INSTANCES} {row[INSTANCES]!r} is not one group such as 2:GPU; take it out")
    return int(found[1])


def _segments(path: FilePath, models: Mapping[str, Iterable[MeasuredPoint]], name: str, source: str,
              gpu: str) -> MeasuredSegments:
    """Measured segments from the points of every model."""
    with refused(path):
        return MeasuredSegments(
            version=1, name=name, kind="measured-segments", gpu=gpu, source=source,
            models={model: MeasuredModel(points=tuple(points)) for model, points in models.items()},
        )


class ModelAnalyzer(Measured):
    """A table of Model Analyzer."""

    path: str = operand("CSV", "the file to read")
    profile: str = local(WHOLE, "P", "MIG profile it was measured on")

    def read(self) -> Imported:
        """Read the table."""
        table, left_out = import_model_analyzer(self.path, self.gpu, self.profile, self.percentile)
        note = f"{left_out} rows left out: not one request in flight per instance"
        return Imported(table, notes=(*[note] * bool(left_out), *warnings(table)))


MODEL_ANALYZER = Importer("metrics-model-inference.csv, as a table", ModelAnalyzer)

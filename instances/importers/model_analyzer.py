"""Imports the ``metrics-model-inference.csv`` of Triton's Model Analyzer, with times in milliseconds.

Instances of a model are processes. Only rows are used in which as many requests are in flight as there are instances.
Of several configurations with the same batch size and number of instances, the one with the highest throughput is used.
"""

import re
from collections.abc import Mapping

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, whole
from provision.instances.files.files import FilePath, refused
from provision.instances.importers.importer import Imported, Importer, warnings
from provision.instances.importers.perf_analyzer import Measured
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

MODEL, BATCH, CONCURRENCY, INSTANCES = "Model", "Batch", "Concurrency", "Instance Group"
THROUGHPUT = "Throughput (infer/sec)"
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
    rows = list(numbered_rows(path, (MODEL, BATCH, CONCURRENCY, INSTANCES, THROUGHPUT, latency)))
    best: dict[tuple[str, int, int], MeasuredPoint] = {}
    counted = 0
    for line, row in rows:
        processes = _instances(path, line, row)
        if whole(path, line, row, CONCURRENCY) != processes:
            continue
        counted += 1
        values = (number(path, line, row, column) for column in (THROUGHPUT, latency))
        point = MeasuredPoint(profile, whole(path, line, row, BATCH), processes, *values)
        key = row[MODEL], point.batch, processes
        best[key] = max(best.get(key, point), point, key=lambda one: one.throughput_rps)
    if not best:
        raise InputError(f"{path}: no row with as many requests in flight as instances; measure such {CONCURRENCY}")
    return _segments(path, best, gpu, percentile), len(rows) - counted


def _instances(path: FilePath, line: int, row: CsvRow) -> int:
    found = GROUP.fullmatch((row[INSTANCES] or "").strip())
    if not found:
        raise InputError(f"{path}:{line}: {INSTANCES} {row[INSTANCES]!r} is not one group such as 2:GPU; take it out")
    return int(found[1])


def _segments(path: FilePath, points: Mapping[tuple[str, int, int], MeasuredPoint], gpu: str,
              percentile: int) -> MeasuredSegments:
    """Measured segments from points by (model, batch, processes)."""
    models: dict[str, list[MeasuredPoint]] = {}
    for (model, _, _), point in points.items():
        models.setdefault(model, []).append(point)
    source = f"Triton Model Analyzer, p{percentile} latency at one request in flight per instance."
    with refused(path):
        return MeasuredSegments(
            version=1,
            name="model-analyzer",
            kind="measured-segments",
            gpu=gpu,
            source=source,
            models={model: MeasuredModel(points=rows) for model, rows in models.items()},
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


IMPORTER = Importer("metrics-model-inference.csv, as a table", ModelAnalyzer)

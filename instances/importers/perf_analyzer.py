"""Imports the CSV files of Triton's perf_analyzer: a file per batch size and number of processes, with times in us.

Such a file tells neither the model nor the slice, so its name must: ``MODEL_PROFILE_bBATCH_pPROCESSES.csv``, as in
``bert_2g.20gb_b8_p3.csv``. A row with n requests in flight is a point with n processes if the file's number of
processes is at least n; the other processes idle. If more requests are in flight than there are processes, most of
the latency is waiting; such rows are dropped and reported.
"""

import re
from pathlib import Path

from provision.instances.files.csv_cells import number, numbered_rows, whole
from provision.instances.files.files import FilePath, refused
from provision.instances.importers.importer import Imported, Importer, Source, warnings
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Count
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
    with refused(path):
        models = {model: MeasuredModel(points=tuple(found.values())) for model, found in points.items()}
        source = f"Triton perf_analyzer, p{percentile} latency at one request in flight per process."
        data = MeasuredSegments(
            version=1, name="perf-analyzer", kind="measured-segments", gpu=gpu, source=source, models=models
        )
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


IMPORTER = Importer("files MODEL_PROFILE_bBATCH_pPROCESSES.csv, as a table", PerfAnalyzer)

"""Import of what Triton's perf_analyzer measured: one CSV file per operating point, times in microseconds.

Such a file tells neither the model nor where it ran, so its name must: ``MODEL_PROFILE_bBATCH_pPROCESSES.csv``, as in
``bert_2g.20gb_b8_p3.csv``. Of its rows the one counts that kept as many requests in flight as there are processes:
fewer leave processes idle, and with more the latency is mostly waiting.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from provision.instances.files.csv_cells import number, numbered_rows
from provision.instances.files.files import refused
from provision.models.base.errors import InputError
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

if TYPE_CHECKING:
    from provision.instances.files.csv_cells import CsvRow
    from provision.instances.files.files import FilePath

NAME = re.compile(r"(?P<model>.+)_(?P<profile>[^_]+)_b(?P<batch>\d{1,9})_p(?P<processes>\d{1,9})")
EXAMPLE = "bert_2g.20gb_b8_p3.csv"
CONCURRENCY, THROUGHPUT = "Concurrency", "Inferences/Second"
US_PER_MS = 1000


def import_perf_analyzer(path: FilePath, gpu: str, percentile: int) -> MeasuredSegments:
    """Measured segments from a file or from all ``*.csv`` of a folder.

    Parameters
    ----------
    path
        The file or folder.
    gpu
        The GPU type it was measured on.
    percentile
        Of the request latency; it must be among the columns.

    Raises
    ------
    InputError
        When there is no file, or a name, column, cell or concurrency is not as it should be.
    """
    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.csv"))
    if not files:
        raise InputError(f"{path}: no *.csv in there; name a file or a folder of files like {EXAMPLE}")
    points: dict[str, list[MeasuredPoint]] = {}
    for file in files:
        model, point = _point(file, f"p{percentile} latency")
        points.setdefault(model, []).append(point)
    with refused(path):
        models = {model: MeasuredModel(points=rows) for model, rows in points.items()}
        source = f"Triton perf_analyzer, p{percentile} latency at one request in flight per process."
        return MeasuredSegments(
            version=1, name="perf-analyzer", kind="measured-segments", gpu=gpu, source=source, models=models
        )


def _point(file: Path, latency: str) -> tuple[str, MeasuredPoint]:
    """Model and MeasuredPoint of one file."""
    found = NAME.fullmatch(file.stem)
    if not found:
        raise InputError(f"{file}: the name must tell model, profile, batch and processes; rename it like {EXAMPLE}")
    batch, processes = int(found["batch"]), int(found["processes"])
    line, row = _row(file, processes, latency)
    throughput_rps, latency_us = number(file, line, row, THROUGHPUT), number(file, line, row, latency)
    return found["model"], MeasuredPoint(found["profile"], batch, processes, throughput_rps, latency_us / US_PER_MS)


def _row(file: Path, processes: int, latency: str) -> tuple[int, CsvRow]:
    """Line and cells with one request in flight per process."""
    rows = list(numbered_rows(file, (THROUGHPUT, latency)))
    if CONCURRENCY not in rows[0][1]:
        raise InputError(f"{file}: column {CONCURRENCY!r} is missing; measure with --concurrency-range {processes}")
    levels = {number(file, line, row, CONCURRENCY): (line, row) for line, row in rows}
    if processes not in levels:
        seen = ", ".join(f"{level:g}" for level in sorted(levels))
        raise InputError(f"{file}: no row at {CONCURRENCY} {processes}, only {seen}; measure that too")
    return levels[processes]

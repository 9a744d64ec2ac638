"""Reads tables of measured pairs: those of gpu-lets, with fractions; and models alone and side by side, with latencies
in ms and shares in percent.
"""

import math

import numpy as np

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, text, whole
from provision.instances.files.files import FilePath
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.fitting.colocation import Pairs
from provision.models.fitting.waves import SoloRuns

UTILISATIONS = ("l2_util_m1", "l2_util_m2", "dram_util_m1", "dram_util_m2")
SLOWDOWN = "slowdown"


def read_pairs(path: FilePath) -> tuple[Floats, Floats]:
    """Read utilisations of the models alone, (4, pairs), as fractions, and slowdowns of the first models, (pairs,).
    Raises InputError if the file cannot be read or lacks a column, or a cell is not a fraction or not a slowdown.
    """
    rows = [_pair(path, line, row) for line, row in numbered_rows(path, (*UTILISATIONS, SLOWDOWN))]
    *utilisations, slowdown = np.array(rows).T
    return np.array(utilisations), slowdown


def _pair(path: FilePath, line: int, row: CsvRow) -> list[float]:
    """The numbers of one row."""
    for column in UTILISATIONS:
        if number(path, line, row, column) > 1:
            raise InputError(f"{path}:{line}: {column} {row[column]!r} is above 1; write a fraction, not percent")
    if number(path, line, row, SLOWDOWN) == 0:
        raise InputError(f"{path}:{line}: {SLOWDOWN} 0 is none; write latency beside the other over latency alone")
    return [number(path, line, row, column) for column in (*UTILISATIONS, SLOWDOWN)]


ALONE = ("model", "batch", "share_percent", "latency_ms")
THROUGHPUT = "throughput_rps"
SIDES = ("a", "b")
BESIDE = tuple(f"{name}_{side}" for side in SIDES for name in ("model", "batch")) + tuple(
    name.format(side) for side in SIDES for name in ("share_{}_percent", "latency_{}_ms")
)


def read_alone(path: str) -> dict[str, SoloRuns]:
    """Read SoloRuns by model from a table of models measured alone; ``throughput_rps`` is optional, other columns are
    ignored. Raises InputError if the file cannot be read or lacks a column, or a cell is not a name or a number above
    0.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for line, row in numbered_rows(path, ALONE):
        measured = _measured(path, line, row, *ALONE[1:])
        throughput = number(path, line, row, THROUGHPUT) if row.get(THROUGHPUT) else math.nan
        found.setdefault(text(path, line, row, "model"), []).append((*measured, throughput))
    return {model: SoloRuns(*np.array(rows).T) for model, rows in found.items()}


def read_beside(path: str) -> Pairs:
    """Read Pairs from a table of models ``a`` and ``b`` measured side by side; other columns are ignored. Raises
    InputError in the cases of ``read_alone``, and if the shares of a pair exceed 100 percent.
    """
    models, numbers = [], []
    for line, row in numbered_rows(path, BESIDE):
        models.append([text(path, line, row, f"model_{side}") for side in SIDES])
        sides = [
            _measured(path, line, row, f"batch_{side}", f"share_{side}_percent", f"latency_{side}_ms")
            for side in SIDES
        ]
        if sum(side[1] for side in sides) > 1 + 1e-9:
            raise InputError(f"{path}:{line}: the shares of a pair exceed 100 percent; correct them")
        numbers.append(sides)
    batch, sm_share, latency_ms = np.moveaxis(np.array(numbers), 2, 0)
    return Pairs(np.array(models), batch, sm_share, latency_ms)


def _measured(path: str, line: int, row: dict[str, str], batch: str, share: str, latency: str) -> tuple[float, ...]:
    """Batch, SM share as a fraction, and latency (ms) in a row; each must be above 0."""
    found = whole(path, line, row, batch), number(path, line, row, share) / 100, number(path, line, row, latency)
    for column, value in zip((batch, share, latency), found, strict=True):
        if value == 0:
            raise InputError(f"{path}:{line}: {column} is 0; write what was measured, or take the row out")
    if found[1] > 1:
        raise InputError(f"{path}:{line}: {share} {row[share]!r} is above 100; write percent of the GPU's SMs")
    return found

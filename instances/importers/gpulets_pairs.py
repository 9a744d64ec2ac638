"""Reads measured pairs of models on one GPU, with the columns that gpu-lets' interference is fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.instances.files.csv_cells import number, numbered_rows
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.csv_cells import CsvRow
    from provision.instances.files.files import FilePath
    from provision.models.base.arrays import Floats

UTILISATIONS = ("l2_util_m1", "l2_util_m2", "dram_util_m1", "dram_util_m2")
SLOWDOWN = "slowdown"


def read_pairs(path: FilePath) -> tuple[Floats, Floats]:
    """Read utilisations of the models alone, (4, pairs), as fractions, and slowdowns of the first models, (pairs,).

    Raises
    ------
    InputError
        If the file cannot be read or lacks a column, or a cell is not a fraction or not a slowdown.
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

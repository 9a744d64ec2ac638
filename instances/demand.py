"""Demand over time: request rates of workloads in windows of equal length, read from CSV."""

import csv
import io
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from provision.instances.files import read_text, write_text
from provision.models.errors import InputError

COLUMNS = ("time_s", "workload", "rate_rps")
MOST_CELLS = 50_000_000
TWO_WAVES = "two-waves"
WAVES = ((0, 600, 1.0), (900, 1800, 1.5))
"""Start and end in seconds, and how much of the stated rate a wave adds at its peak."""
WINDOW_S = 20
SHIFT_S = 60


@dataclass(frozen=True)
class Demand:
    """Rates (requests/s) as an array (windows, workloads); ``times_s`` are the starts of the windows, ascending."""

    times_s: np.ndarray
    workloads: tuple[str, ...]
    rates_rps: np.ndarray

    @cached_property
    def window_s(self):
        """Length of a window, the smallest step between two starts, in seconds; 0 when there is only one."""
        return float(np.diff(self.times_s).min()) if len(self.times_s) > 1 else 0.0

    def instance(self, instance, rates_rps):
        """The instance with the rates given, one per workload of this demand; other workloads keep theirs.

        Raises
        ------
        InputError
            When the instance lacks a workload of the demand.
        """
        rates = dict(zip(self.workloads, np.asarray(rates_rps, float).tolist(), strict=True))
        missing = [name for name in self.workloads if name not in instance.workload]
        if missing:
            raise InputError(
                f"demand: the instance {instance.name} has no workload {missing[0]!r}; "
                f"it has {', '.join(list(instance.workload)[:20])}"
            )
        workloads = [
            one.model_copy(update={"rate_rps": rates.get(one.name, one.rate_rps)}) for one in instance.workloads
        ]
        return instance.replace(workloads=tuple(workloads))


def two_waves(instance, seed=0):
    """The shape of gpu-lets' experiment on fluctuating rates (its section 6, figure 14): 1,800 s in windows of 20 s.

    Rates rise and fall between 0 and 600 s, and higher between 900 and 1,800 s, each workload's at times of its own.
    The paper shows the shape and no numbers: half the stated rate at rest, and the heights of WAVES, are ours.
    """
    times_s = np.arange(0, 1800, WINDOW_S, dtype=float)
    shifts = np.random.default_rng(seed).uniform(-SHIFT_S, SHIFT_S, len(instance.workloads))
    local = times_s[:, None] - shifts[None, :]
    factor = np.full(local.shape, 0.5)
    for start, end, height in WAVES:
        inside = np.clip((local - start) / (end - start), 0, 1)
        factor += height * np.sin(np.pi * inside) ** 2
    rates = factor * [workload.rate_rps for workload in instance.workloads]
    return Demand(times_s, tuple(workload.name for workload in instance.workloads), rates)


def read_demand(path):
    """Demand from a CSV file with the columns ``time_s,workload,rate_rps``, in any order.

    A workload that has no row in a window has no request in it.

    Raises
    ------
    InputError
        When a column is missing, a cell is no number, negative or stands twice, or windows overlap.
    """
    reader = csv.reader(io.StringIO(read_text(path)))
    header = [name.strip() for name in next(reader, [])]
    for name in COLUMNS:
        if name not in header:
            raise InputError(f"{path}:1: no column {name!r}; a demand file has the columns {','.join(COLUMNS)}")
    at = [header.index(name) for name in COLUMNS]
    cells = {}
    for number, row in enumerate(reader, start=2):
        if row:
            time_s, workload, rate_rps = _cell(path, number, row, at)
            if (time_s, workload) in cells:
                raise InputError(f"{path}:{number}: {workload!r} stands twice at {time_s:g} s; keep one row")
            cells[time_s, workload] = rate_rps
    return from_cells(cells, path)


def write_demand(demand, path, force=False):
    """Write demand as a file that ``read_demand`` reads.

    Raises
    ------
    InputError
        When the file exists and ``force`` is not set, or cannot be written.
    """
    lines = [",".join(COLUMNS)]
    for time_s, rates in zip(demand.times_s.tolist(), demand.rates_rps.tolist(), strict=True):
        lines += [f"{time_s:g},{name},{rate!r}" for name, rate in zip(demand.workloads, rates, strict=True)]
    write_text(path, "\n".join(lines) + "\n", force)


def from_cells(cells, where):
    """Demand from ``{(time_s, workload): rate_rps}``.

    Raises
    ------
    InputError
        When there is none, or too much to hold.
    """
    if not cells:
        raise InputError(f"{where}: no rows; expected {','.join(COLUMNS)}")
    times, names = (sorted({key[part] for key in cells}) for part in (0, 1))
    if len(times) * len(names) > MOST_CELLS:
        raise InputError(f"{where}: {len(times):,} windows of {len(names):,} workloads are too many; cut it")
    row_of, column_of = ({value: index for index, value in enumerate(values)} for values in (times, names))
    rates = np.zeros((len(times), len(names)))
    for (time_s, name), rate in cells.items():
        rates[row_of[time_s], column_of[name]] = rate
    return Demand(np.array(times, float), tuple(names), rates)


def _cell(path, number, row, at):
    """Time, workload and rate of a row."""
    try:
        time_s, workload, rate_rps = (row[column].strip() for column in at)
        time_s, rate_rps = float(time_s), float(rate_rps)
    except (IndexError, ValueError):
        wanted = ",".join(COLUMNS)
        raise InputError(f"{path}:{number}: {','.join(row)!r}: expected {wanted}, as 600,bert,12.5") from None
    if not (math.isfinite(time_s) and 0 <= rate_rps < math.inf and workload):
        raise InputError(f"{path}:{number}: {','.join(row)!r}: the rate should be 0 or more, the time a number")
    return time_s, workload, rate_rps

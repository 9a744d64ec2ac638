"""Demand over time: request rates of workloads in windows of equal length, read from CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from provision.instances.files.csv_cells import csv_text, number, numbered_rows, refuse_rows, text
from provision.instances.files.files import write_text
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.problem.workload import LEAST_RPS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from provision.instances.files.files import FilePath
    from provision.models.base.arrays import Floats
    from provision.models.problem.instance import Instance

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

    times_s: Floats
    workloads: tuple[str, ...]
    rates_rps: Floats

    @cached_property
    def window_s(self) -> float:
        """Length of a window, the smallest step between two starts, in seconds; 0 when there is only one."""
        return float(np.diff(self.times_s).min()) if len(self.times_s) > 1 else 0.0

    def instance(self, instance: Instance, rates_rps: ArrayLike) -> Instance:
        """The instance at these rates, one for each workload of this demand; other workloads keep their rates.

        Raises
        ------
        InputError
            When the instance lacks a workload of the demand.
        """
        missing = [name for name in self.workloads if name not in instance.workload]
        if missing:
            raise InputError(
                f"demand: the instance {instance.name} has no workload {missing[0]!r}; "
                f"it has {', '.join(list(instance.workload)[:20])}{did_you_mean(missing[0], instance.workload)}"
            )
        return at_rates(instance, dict(zip(self.workloads, np.asarray(rates_rps, float).tolist(), strict=True)))


def at_rates(instance: Instance, rates_rps: Mapping[str, float]) -> Instance:
    """The instance at other rates by workload; workloads not named keep theirs, and rates below LEAST_RPS become 0."""
    rates = {one.name: rates_rps.get(one.name, one.rate_rps) for one in instance.workloads}
    return instance.replace(workloads=tuple(
        one.model_copy(update={"rate_rps": rates[one.name] if rates[one.name] >= LEAST_RPS else 0.0})
        for one in instance.workloads
    ))


def two_waves(instance: Instance, seed: int = 0) -> Demand:
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


def read_demand(path: FilePath, columns: tuple[str, str, str] = COLUMNS) -> Demand:
    """Demand from a CSV file with the columns ``time_s,workload,rate_rps``, or others for these, in any order.

    A workload that has no row in a window has no request in it.

    Raises
    ------
    InputError
        When a column is missing, a cell is no number or negative, a workload stands twice in a window.
    """
    time_column, name_column, rate_column = columns
    cells: dict[tuple[float, str], float] = {}
    wrong: list[str] = []
    for line, row in numbered_rows(path, columns):
        try:
            time_s, workload = number(path, line, row, time_column), text(path, line, row, name_column)
            if (time_s, workload) in cells:
                raise InputError(f"{path}:{line}: {workload!r} stands twice at {time_s:g} s; keep one row")
            cells[time_s, workload] = number(path, line, row, rate_column)
        except InputError as error:
            wrong.append(str(error))
    refuse_rows(path, wrong)
    return from_cells(cells, path)


def write_demand(demand: Demand, path: FilePath, force: bool = False) -> None:
    """Write demand as a file that ``read_demand`` reads.

    Raises
    ------
    InputError
        When the file exists and ``force`` is not set, or cannot be written.
    """
    rows = [
        (time_s, name, rate)
        for time_s, rates in zip(demand.times_s.tolist(), demand.rates_rps.tolist(), strict=True)
        for name, rate in zip(demand.workloads, rates, strict=True)
    ]
    write_text(path, csv_text(COLUMNS, rows), force)


def from_cells(cells: Mapping[tuple[float, str], float], where: object) -> Demand:
    """Demand from ``{(time_s, workload): rate_rps}``.

    Raises
    ------
    InputError
        When there is too much to hold.
    """
    times, names = sorted({time_s for time_s, _ in cells}), sorted({name for _, name in cells})
    if len(times) * len(names) > MOST_CELLS:
        raise InputError(f"{where}: {len(times):,} windows of {len(names):,} workloads are too many; cut it")
    row_of = {time_s: index for index, time_s in enumerate(times)}
    column_of = {name: index for index, name in enumerate(names)}
    rates = np.zeros((len(times), len(names)))
    for (time_s, name), rate in cells.items():
        rates[row_of[time_s], column_of[name]] = rate
    return Demand(np.array(times, float), tuple(names), rates)

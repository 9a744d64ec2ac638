"""Demand over time, in windows of equal length: reads and writes CSV, and gives an instance a window's rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from provision.instances.files.csv_cells import (
    CsvRow,
    csv_text,
    header,
    number,
    numbered_rows,
    parsed,
    refuse_rows,
    text,
)
from provision.instances.files.files import FilePath, write_text
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.problem.instance import Instance
from provision.models.problem.workload import LEAST_RPS

COLUMNS = ("time_s", "workload", "rate_rps")
TIMES = ("time", "timestamp", "datetime", "date")
"""Other names that the column of times may have."""
WIDE = ", or a column of times (time_s, time or timestamp) and one per workload"
MOST_CELLS = 50_000_000
TWO_WAVES = "two-waves"
WAVES = ((0, 600, 1.0), (900, 1800, 1.5))
"""Start and end of every wave in seconds, and the fraction of the stated rate that the wave adds at its peak."""
WINDOW_S = 20
SHIFT_S = 60


@dataclass(frozen=True)
class Demand:
    """Rates of workloads over time: ``rates_rps`` is (windows, workloads), in requests/s; ``times_s`` are the starts of
    the
    windows, ascending.
    """

    times_s: Floats
    workloads: tuple[str, ...]
    rates_rps: Floats

    @cached_property
    def window_s(self) -> float:
        """The length of a window in seconds: the smallest step between two starts; 0 if there is only one window."""
        return float(np.diff(self.times_s).min()) if len(self.times_s) > 1 else 0.0

    def instance(self, instance: Instance, rates_rps: ArrayLike) -> Instance:
        """The instance with the rates ``rates_rps`` of this demand's workloads; other workloads keep their rates.
        Raises InputError if the instance lacks a workload of the demand.
        """
        missing = [name for name in self.workloads if name not in instance.workload]
        if missing:
            raise InputError(
                f"demand: the instance {instance.name} has no workload {missing[0]!r}; "
                f"it has {', '.join(list(instance.workload)[:20])}{did_you_mean(missing[0], instance.workload)}"
            )
        return at_rates(instance, dict(zip(self.workloads, np.asarray(rates_rps, float).tolist(), strict=True)))


def at_rates(instance: Instance, rates_rps: Mapping[str, float]) -> Instance:
    """The instance with other rates, given by workload. Workloads that are not named keep their rate; rates below
    LEAST_RPS
    become 0.
    """
    rates = {one.name: rates_rps.get(one.name, one.rate_rps) for one in instance.workloads}
    return instance.replace(workloads=tuple(
        one.model_copy(update={"rate_rps": rates[one.name] if rates[one.name] >= LEAST_RPS else 0.0})
        for one in instance.workloads
    ))


def two_waves(instance: Instance, seed: int = 0) -> Demand:
    """Return a demand shaped like that of gpu-lets' experiment on fluctuating rates (its section 6, figure 14): 1,800 s
    in 20 s windows.

    Rates rise and fall between 0 and 600 s, and once more, higher, between 900 and 1,800 s; every workload is shifted
    in time by a random amount. The paper shows the shape without numbers; the heights of WAVES and the rate between the
    waves, half of the stated rate, are our choice.
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


def read_demand(path: FilePath, columns: tuple[str, str, str] = COLUMNS, zone: tzinfo | None = None) -> Demand:
    """Read demand from a CSV file, which has one of two forms.

    The long form has the columns ``time_s,workload,rate_rps`` in any order, or columns named as in ``columns``. The
    wide form has a column of times and a column for each workload, as dashboards export it. Times are seconds, or dates
    with times, which become seconds since 1970; those that name no time zone are in ``zone``, by default UTC. A
    workload without a row, or with an empty cell, in a window has the rate 0 there. Raises InputError if a column is
    missing, a cell is not a number or is negative, or a workload occurs twice in a window.
    """
    found = header(path)
    times = [name for name in found if name == columns[0] or name.lower() in TIMES]
    wide = len(times) == 1 and len(found) > 1 and not {*columns[1:]} & {*found}
    time_column = times[0] if times and columns[0] not in found else columns[0]
    cells: dict[tuple[float, str], float] = {}
    wrong: list[str] = []
    for line, row in numbered_rows(path, [time_column] if wide else [time_column, *columns[1:]], WIDE):
        try:
            time_s = _seconds(path, line, time_column, row[time_column], zone or UTC)
            rates = _row(path, line, row, [name for name in found if name != time_column]) if wide else {
                text(path, line, row, columns[1]): number(path, line, row, columns[2])
            }
            for workload, rate in rates.items():
                if (time_s, workload) in cells:
                    raise InputError(f"{path}:{line}: {workload!r} stands twice at {row[time_column]}; keep one row")
                cells[time_s, workload] = rate
        except InputError as error:
            wrong.append(str(error))
    refuse_rows(path, wrong)
    return from_cells(cells, path)


def _row(path: FilePath, line: int, row: CsvRow, workloads: Sequence[str]) -> dict[str, float]:
    """The rates by workload in a row of the wide form."""
    return {name: number(path, line, row, name) if (row[name] or "").strip() else 0.0 for name in workloads}


def _seconds(path: FilePath, line: int, column: str, cell: str | None, zone: tzinfo) -> float:
    """The seconds in a cell; a date with time is converted to seconds since 1970, and is in ``zone`` if it names
    none.
    """
    try:
        dated = datetime.fromisoformat((cell or "").strip())
    except ValueError:
        dated = None
    if dated is None or (cell or "").strip().isdecimal():
        try:
            return parsed(path, line, column, cell)
        except InputError:
            wanted = "neither seconds nor a date and time like 2026-08-01 10:05"
            raise InputError(f"{path}:{line}: {column} {cell!r} is {wanted}; correct it") from None
    return (dated if dated.tzinfo else dated.replace(tzinfo=zone)).timestamp()


def write_demand(demand: Demand, path: FilePath, force: bool = False) -> None:
    """Write demand as a file that ``read_demand`` reads. Raises InputError if the file exists and ``force`` is not set,
    or if the file cannot be written.
    """
    rows = [
        (time_s, name, rate)
        for time_s, rates in zip(demand.times_s.tolist(), demand.rates_rps.tolist(), strict=True)
        for name, rate in zip(demand.workloads, rates, strict=True)
    ]
    write_text(path, csv_text(COLUMNS, rows), force)


def from_cells(cells: Mapping[tuple[float, str], float], where: object) -> Demand:
    """Make a demand from rates by start and workload, ``{(time_s, workload): rate_rps}``; ``where`` names their source.
    Raises InputError if there are more than MOST_CELLS rates.
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

"""Arrival times of requests in a replay, in whole nanoseconds, from arrival processes and traces."""

from array import array
from collections.abc import Sequence
from os import PathLike

import numpy as np

from provision.instances.files.csv_cells import number, numbered_rows, text
from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.traffic.arrivals import Mmpp, Poisson, Renewal, Trace, arrival_times_s
from provision.simulation.kernel import NS_PER_S

COLUMNS = ("time_s", "workload")


def process_of(cv: float) -> Poisson | Renewal:
    """The renewal process with a given coefficient of variation of inter-arrival times: 1 is Poisson, 0 is constant."""
    return Poisson() if cv == 1 else Renewal(cv=cv)


def arrivals_ns(
    arrivals: Poisson | Renewal | Mmpp | Trace, rate_rps: float, seconds: float, random: np.random.Generator
) -> Ints:
    """Draw a sample of an arrival process.

    Returns
    -------
    ndarray
        Arrival times before ``seconds``, in whole nanoseconds, ascending.
    """
    return np.floor(arrival_times_s(arrivals, rate_rps, seconds, random) * NS_PER_S).astype(np.int64)


def read_trace(path: str | PathLike[str], names: Sequence[str], seconds: float) -> tuple[list[Ints], int]:
    """The arrivals of a trace for each of ``names``, in whole nanoseconds.

    Arrivals after ``seconds`` are left out. Their number is also returned. Raises InputError if the file cannot be
    read, if times do not ascend, or if a row's workload is not in ``names``.
    """
    times, latest, left_out = {name: array("d") for name in names}, 0.0, 0
    for line, row in numbered_rows(path, COLUMNS):
        time_s, workload = number(path, line, row, "time_s"), text(path, line, row, "workload")
        if time_s < latest:
            raise InputError(f"{path}:{line}: time_s {time_s:g} comes after {latest:g}; sort the rows by time")
        if workload not in times:
            raise InputError(f"{path}:{line}: workload {workload!r} is not in the instance; it has {', '.join(names)}")
        latest = time_s
        if time_s < seconds:
            times[workload].append(time_s)
        else:
            left_out += 1
    return [np.floor(np.array(found) * NS_PER_S).astype(np.int64) for found in times.values()], left_out

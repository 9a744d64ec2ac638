"""When requests arrive and where they go: renewal processes, traces, and routing by rate."""

import math
from array import array

import numpy as np

from provision.instances.files.csv_cells import number, numbered_rows, text
from provision.models.base.errors import InputError
from provision.simulation.kernel import NS_PER_S

COLUMNS = ("time_s", "workload")
EVEN = 1e-6
"""With less variation gaps are even: Gamma's shape would be too large to draw from."""


def renewal_ns(rate_rps, cv, seconds, random):
    """Arrivals of a stationary renewal process with Gamma gaps: Poisson for ``cv`` 1, evenly spaced for 0.

    The first arrival is what is left of the gap that time 0 falls into: a gap drawn by its length, times a uniform.

    Returns
    -------
    ndarray
        Times in whole nanoseconds, in order, before ``seconds``.
    """
    if rate_rps == 0:
        return np.zeros(0, np.int64)
    expected = rate_rps * seconds
    several = math.ceil(expected + 5 * (1 + cv) * math.sqrt(expected)) + 1
    times = [_gaps(rate_rps, cv, 1, random, longer=1) * random.random()]
    while times[-1][-1] < seconds:
        times.append(times[-1][-1] + np.cumsum(_gaps(rate_rps, cv, several, random)))
    times = np.concatenate(times)
    return np.floor(times[times < seconds] * NS_PER_S).astype(np.int64)


def _gaps(rate_rps, cv, count, random, longer=0):
    """Inter-arrival times, s; with ``longer`` 1 those met by a random moment."""
    if cv < EVEN:
        return np.full(count, 1 / rate_rps)
    shape = 1 / cv**2
    return random.gamma(shape + longer, 1 / (shape * rate_rps), count)


def read_trace(path, names, seconds):
    """Arrivals of a trace by workload, in whole nanoseconds, and how many come after ``seconds`` and are left out.

    Raises
    ------
    InputError
        When the file cannot be read or a row is not a time in order and one of the ``names``.
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


def route(count, shares):
    """Which replica each of ``count`` requests goes to: weighted round robin.

    A replica with share w is due at (k + 1/2) / w for k = 0, 1, ...; requests go to whoever is due first, the first
    replica of equals.

    Returns
    -------
    ndarray
        (count,) replica indices; at any time each has its share of all requests, to within about one.
    """
    if len(shares) < 2:
        return np.zeros(count, np.int64)
    turns = [math.ceil(count * share) + 1 if share else 0 for share in shares]
    due = np.concatenate([(np.arange(n) + 0.5) / share if n else [] for n, share in zip(turns, shares, strict=True)])
    order = np.argsort(due, kind="stable")[:count]
    return np.repeat(np.arange(len(shares)), turns)[order]

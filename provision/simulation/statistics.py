"""Summarises tallies for the report: quantiles with confidence intervals, rates and counts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from provision.models.base.arrays import Floats
from provision.models.base.tolerances import CLOCK_MS
from provision.models.plans.simulation_report import (
    TAIL_LEVELS,
    TARGET,
    Interval,
    SimulatedWorkload,
    SimulationSettings,
)
from provision.models.problem.workload import Workload
from provision.simulation.replay import Tally

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": TARGET, "p999": 0.999}
CONFIDENCE = 0.95


class Timed(NamedTuple):
    """Something with an SLO that is not a workload: a workflow."""

    name: str
    slo_ms: float


def summarise(workload: Workload | Timed, processes: int, settings: SimulationSettings, tallies: Sequence[Tally],
              percentile: float = 100 * TARGET) -> SimulatedWorkload:
    """Summarise the requests of one workload.

    Parameters
    ----------
    workload
        The Workload, a Timed, or a FurtherLimit.
    processes
        The number of its processes.
    settings
        SimulationSettings.
    tallies
        Its Tally in every replication.
    percentile
        The percentile for which the SLO is stated.

    Returns
    -------
    SimulatedWorkload
    """
    measured_s = (settings.seconds - settings.measured_from_s) * len(tallies)
    counts = {name: sum(getattr(one, name) for one in tallies) for name in tallies[0]._fields[1:]}
    offered = counts["measured_drops"] + sum(len(one.latencies_ms) for one in tallies)
    late = counts["measured_drops"] + sum(np.sum(one.latencies_ms > workload.slo_ms + CLOCK_MS) for one in tallies)
    asked = [one for one in tallies if one.measured_drops or len(one.latencies_ms)] or tallies
    tails = np.array([quantiles(one.latencies_ms, one.measured_drops, TAIL_LEVELS) for one in asked])
    taken = counts["arrived"] - counts["dropped"]
    return SimulatedWorkload(
        workload=workload.name,
        slo_ms=workload.slo_ms,
        offered_rps=offered / measured_s,
        **{name: _interval(asked, level) for name, level in LEVELS.items()},
        percentile=percentile,
        at_slo=_interval(asked, percentile / 100),
        throughput_rps=counts["answers"] / measured_s,
        violation_rate=late / offered if offered else 0.0,
        utilisation=counts["busy_ns"] / (1e9 * measured_s * processes) if processes else None,
        mean_batch=taken / counts["batches"] if counts["batches"] else None,
        **{name: counts[name] for name in ("arrived", "served", "dropped", "in_flight")},
        tail_ms=tuple(finite(value) for value in tails.mean(axis=0)),
    )


def quantiles(latencies_ms: Floats, drops: int, levels: Sequence[float]) -> list[float]:
    """Quantiles of latency, in ms: for every level, the shortest latency that this fraction of all requests does not
    exceed.

    A quantile that falls among the dropped requests is infinite.

    Parameters
    ----------
    latencies_ms
        Sorted latencies of the requests that were answered.
    drops
        The number of requests that were never answered.
    levels
        The levels, as fractions.
    """
    count = len(latencies_ms) + drops
    ranks = [max(math.ceil(level * count * (1 - 1e-12)), 1) - 1 for level in levels]
    return [latencies_ms[rank] if rank < len(latencies_ms) else math.inf for rank in ranks]


def _interval(tallies: Sequence[Tally], level: float) -> Interval:
    """The mean of a quantile over the replications, with its confidence interval (Student's t)."""
    values = np.array([quantiles(one.latencies_ms, one.measured_drops, [level])[0] for one in tallies])
    if len(values) == 1 or not np.isfinite(values).all():
        return Interval(mean_ms=finite(values.mean()))
    half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / math.sqrt(len(values))
    return Interval(mean_ms=values.mean(), low_ms=max(values.mean() - half, 0.0), high_ms=values.mean() + half)


def finite(value: float) -> float | None:
    """The number itself, or None if it is infinite."""
    return float(value) if math.isfinite(value) else None

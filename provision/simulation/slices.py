"""A slice of a plan as the event loop needs it, with changes of its batch times, and answer times of requests."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.performance.gpulets import gpulets_of
from provision.models.plans.plan import Slice
from provision.models.plans.simulation_report import SimulationSettings
from provision.simulation.kernel import FOREVER, NS_PER_MS, NS_PER_S, REPLICA, SLOT, Line, rescale
from provision.simulation.latencies import BatchTimes

LONGEST_NS = 2**62
EARLY_NS = 4
"""A batch that does not fill starts this many nanoseconds before its latest moment.

The ends of its stages are rounded up to whole nanoseconds, and a request that is answered a nanosecond after its SLO
would count as late.
"""


class PlannedSlice(NamedTuple):
    """A slice with replicas: the index and type of its GPU, its BatchTimes, and for each replica how long a batch may
    wait.
    """

    gpu: int
    type: str
    piece: Slice
    times: BatchTimes
    delays_ms: tuple[float, ...]


def line_of(planned: PlannedSlice, settings: SimulationSettings, arrivals_ns: Sequence[Ints],
            factors: Sequence[Floats]) -> Line:
    """The Line of a slice at the start, before any request has arrived.

    Parameters
    ----------
    planned
        The PlannedSlice.
    settings
        SimulationSettings.
    arrivals_ns, factors
        For each replica, the ascending arrival times of its requests, and the factors on the times of its batches. The
        last factor is for all further batches.

    Returns
    -------
    Line

    Raises
    ------
    InputError
        If serving all requests would take longer than the clock can count.
    """
    ends, factor_ends = np.cumsum([list(map(len, arrivals_ns)), list(map(len, factors))], axis=1)
    replicas = np.zeros(len(arrivals_ns), REPLICA)
    replicas["head"] = replicas["tail"] = replicas["upcoming"] = np.append(0, ends[:-1])
    replicas["end"] = ends
    replicas["factor"], replicas["last_factor"] = np.append(0, factor_ends[:-1]), factor_ends - 1
    replicas["arrive_ns"] = [arrivals[0] if len(arrivals) else FOREVER for arrivals in arrivals_ns]
    replicas["start_ns"] = FOREVER
    replicas["batch"] = [one.batch for one in planned.piece.replicas]
    replicas["idle"] = [one.processes for one in planned.piece.replicas]
    delays_ms, early_ns = (planned.delays_ms, EARLY_NS) if settings.max_delay_ms is None else (settings.max_delay_ms, 0)
    replicas["delay_ns"] = np.maximum(np.minimum(delays_ms, LONGEST_NS / 2 / NS_PER_MS) * NS_PER_MS - early_ns, 0)
    replicas["queue_limit"] = settings.queue_limit or FOREVER
    replicas["step"], replicas["stages"] = planned.times.step, planned.times.stages
    for part in gpulets_of(planned.piece.replicas):
        replicas["next_in_turn"][part] = np.roll(part, -1)
    slots = np.zeros(replicas["idle"].sum(), SLOT)
    slots["replica"], slots["finish_ns"] = np.repeat(np.arange(len(replicas)), replicas["idle"]), FOREVER
    window_ns = np.array([settings.measured_from_s, settings.seconds]) * NS_PER_S
    hold_ns, latency_ns = _tables(planned, settings)
    line = Line(
        replicas, slots, np.concatenate(arrivals_ns), np.zeros(ends[-1], np.int64), np.concatenate(factors),
        hold_ns, latency_ns, np.zeros(1, np.int64), np.rint(window_ns).astype(np.int64),
    )
    work = line.factor.sum() + (ends[-1] + 1) * line.factor[replicas["last_factor"]].max()
    if not work * line.hold_ns.max() + line.latency_ns.max() < LONGEST_NS:
        raise InputError("simulate: serving all requests would take a century; shorten the time or the batch latencies")
    return line


def changed(line: Line, planned: PlannedSlice, settings: SimulationSettings, now_s: float) -> Line:
    """The Line with other batch times from the moment ``now_s`` on."""
    hold_ns, latency_ns = _tables(planned, settings)
    line = line._replace(hold_ns=hold_ns, latency_ns=latency_ns)
    rescale(line, round(now_s * NS_PER_S))
    return line


def answered(line: Line, at: int) -> tuple[Ints, Ints]:
    """The arrival and answer times, in whole nanoseconds, of all requests of a replica whose batch has started.

    An answer time of 0 means that the request has not been answered yet.
    """
    replica = line.replicas[at]
    part = slice(line.replicas["end"][at - 1] if at else 0, replica["head"])
    return line.arrival_ns[part], line.done_ns[part]


def _tables(planned: PlannedSlice, settings: SimulationSettings) -> tuple[Floats, Floats]:
    """The tables ``hold_ns`` and ``latency_ns`` of a Line."""
    scale = settings.service_factor * NS_PER_MS
    hold_ns, latency_ns = (np.minimum(table, LONGEST_NS / scale) * scale
                           for table in (planned.times.hold_ms, planned.times.latency_ms))
    return hold_ns, latency_ns

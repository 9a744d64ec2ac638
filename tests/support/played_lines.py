"""Slices played by the event loop: from tables and arrivals to answers."""

import numpy as np

from provision.models.plans.plan import Replica, Slice
from provision.models.plans.simulation_report import SimulationSettings
from provision.simulation.kernel import FOREVER, PlannedSlice, advance, answered, line_of
from provision.simulation.latencies import BatchTimes

MS = 10**6


def one_row(hold_ms):
    """Tables (1, replicas, size + 1) whoever is busy."""
    return BatchTimes(np.zeros(len(hold_ms), int), *[np.array([hold_ms], float)] * 2)


def played(times, replicas, arrivals_ms, factors=None, delays_ms=None, until_ms=None, **options):
    """A Line after the event loop; ``replicas`` are (batch, processes) or with a turn."""
    piece = Slice(profile="whole", replicas=tuple(
        Replica(workload=f"w{at}", batch=batch, processes=processes, rate_rps=1.0, turn=next(iter(turn), None))
        for at, (batch, processes, *turn) in enumerate(replicas)
    ))
    planned = PlannedSlice(0, "t4", piece, times, tuple(delays_ms or [0.0] * len(replicas)))
    arrivals_ns = [np.rint(np.multiply(one, MS)).astype(np.int64) for one in arrivals_ms]
    factors = factors or [np.ones(1) for _ in replicas]
    line = line_of(planned, SimulationSettings(**{"warmup_s": 0.0} | options), arrivals_ns, factors)
    advance(line, FOREVER if until_ms is None else round(until_ms * MS))
    return line


def sojourns_ms(line, at=0):
    """Time from arrival to answer of every accepted request."""
    arrival_ns, done_ns = answered(line, at)
    return (done_ns - arrival_ns) / MS

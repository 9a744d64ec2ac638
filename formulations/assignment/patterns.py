"""Patterns of one slice.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid. Where batch times depend on the rates (closed networks on a
shared slice), a pattern is *routed*: it is feasible only at the rates that it names.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload


class PatternReplica(NamedTuple):
    """One replica of a pattern: the index of its workload, of its model in the workload's models, and how it runs.

    ``turn`` is as in a Replica.
    """

    workload: int
    model: int
    batch: int
    processes: int
    sm_share: float
    capacity_rps: float
    turn: int | None = None


class SlicePattern(NamedTuple):
    """The replicas on one slice. If ``routed``, each carries exactly its capacity.

    ``throughput_rps`` is the rate that all replicas together could carry. The objective max_throughput counts it.
    """

    replicas: tuple[PatternReplica, ...]
    throughput_rps: float
    routed: bool = False


def clients_of(entry: FleetEntry, profile: str) -> int:
    """The most processes that may run on a slice."""
    return int(entry.type.slice_mps_clients(profile)) if entry.mps else 1


def capacity_rps(instance: Instance, workload: Workload, batch: Ints, latency_ms: Floats, throughput_rps: Floats
                 ) -> Floats:
    """The most requests/s that may be routed to replicas on a shared slice; 0 where they violate the latency budget.

    A latency rule may allow longer batches at lower rates. The batch times here do not depend on the rates, so the
    capacity is the highest rate at which the rule allows these batch times.

    Parameters
    ----------
    instance, workload
        The problem and the workload, which give policy and SLO.
    batch, latency_ms, throughput_rps
        Arrays of the same length: batch sizes, and the latency and the throughput of a single process beside all
        neighbours.
    """
    budget_ms, found = instance.budget_ms(workload) * (1 + TOLERANCE), np.zeros(len(batch))
    kept = latency_ms <= budget_ms
    hold_ms = 1000 * batch[kept] / throughput_rps[kept]
    found[kept] = instance.policy.rule_for(workload).capacity_rps(batch[kept], 1, hold_ms, latency_ms[kept], budget_ms)
    return found


def parts_of(instance: Instance, pattern: SlicePattern) -> dict[int, float]:
    """The fractions of the planned rates that a pattern carries, by workload."""
    found = defaultdict[int, float](float)
    for one in pattern.replicas:
        planned = instance.planned_rps(instance.workloads[one.workload])
        found[one.workload] += one.capacity_rps / planned if planned else 1.0
    return found

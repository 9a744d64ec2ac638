"""Patterns of one slice, and the criteria by which they are compared.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid. Where batch times depend on the rates (closed networks on a
shared slice), a pattern is *routed*: it is feasible only at the rates that it names.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.instance import THROUGHPUT, Instance
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


class Criteria:
    """The criteria by which patterns are compared: fractions of planned rates, replicas and, if maximised, throughput.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.planned_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.share = np.array([one.max_share_per_gpu for one in instance.workloads])
        self.counted = instance.objective == THROUGHPUT

    def table(self, workload: Ints, rate_rps: Floats) -> tuple[Floats, Ints]:
        """(patterns, workloads) the fractions of the planned rates that patterns carry, and their numbers of replicas.

        Fractions are at most the largest share on a GPU. ``workload`` and ``rate_rps`` are (patterns, members);
        workload -1 stands for no member.
        """
        planned = self.planned_rps[workload]
        each = np.divide(rate_rps, planned, out=np.ones(rate_rps.shape), where=planned > 0)
        mine = [workload == w for w in range(len(self.share))]
        parts = np.array([np.where(one, each, 0.0).sum(axis=1) for one in mine]).T
        return np.minimum(parts, self.share), np.array([one.sum(axis=1) for one in mine]).T

    def costs(self, parts: Floats, replicas: Ints, throughput_rps: Floats) -> Floats:
        """(patterns, criteria) the values of patterns by every criterion; less is better. Numbers of replicas are
        criteria only for workloads that limit them.
        """
        columns: list[Any] = [-parts]
        for w, one in enumerate(self.instance.workloads):
            columns += [-np.minimum(replicas[:, [w]], one.min_replicas)] if one.min_replicas else []
            columns += [replicas[:, [w]]] if one.max_replicas is not None else []
        columns += [-throughput_rps[:, None]] if self.counted else []
        return np.concatenate(columns, axis=1).astype(float)

    def undominated(self, patterns: Iterable[SlicePattern], started: Callable[[SlicePattern], int] | None = None
                    ) -> list[SlicePattern]:
        """The patterns that no other pattern dominates in all criteria. Of equal patterns, one is kept.

        A routed pattern never dominates one that is not routed: its rates are fixed, so a GPU with it might carry more
        of a workload than one GPU may. ``started``, if given, is a further criterion: the number of replicas that must
        be started for a pattern.
        """
        found = list(patterns)
        apart = ([one for one in found if one.routed is routed] for routed in (False, True))
        return [alike[at] for alike in apart if alike for at in undominated(self._costs(alike, started))]

    def _costs(self, patterns: list[SlicePattern], started: Callable[[SlicePattern], int] | None) -> Floats:
        width = max(len(one.replicas) for one in patterns)
        owner, rate = np.full((len(patterns), width), -1), np.zeros((len(patterns), width))
        for at, pattern in enumerate(patterns):
            owner[at, : len(pattern.replicas)] = [one.workload for one in pattern.replicas]
            rate[at, : len(pattern.replicas)] = [one.capacity_rps for one in pattern.replicas]
        costs = self.costs(*self.table(owner, rate), np.array([one.throughput_rps for one in patterns]))
        return costs if started is None else np.column_stack([costs, [started(one) for one in patterns]])


def undominated(costs: Floats) -> Ints:
    """The indices of the rows of ``costs`` (rows, criteria) that no other row dominates. Of equal rows, one is kept."""
    order = np.lexsort((*costs.T, costs.sum(axis=1)))
    kept = []
    while len(order):
        first = order[0]
        kept.append(first)
        order = order[~(costs[first] <= costs[order]).all(axis=1)]
    return np.array(sorted(kept), int)

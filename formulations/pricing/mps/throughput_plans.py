"""Plans for objective max_throughput under interference: the throughput of replicas that share a GPU, and plans."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from provision.formulations.pricing.mps.best_points import CLOSE, NOTHING, BestPoints, most_throughput
from provision.formulations.pricing.mps.choices import Choices, choices_of
from provision.formulations.pricing.mps.laws import shares_of
from provision.formulations.pricing.mps.pools import GpuPool
from provision.formulations.pricing.mps.shared_plans import FEATURES as SHARED_FEATURES
from provision.formulations.pricing.mps.shared_plans import Pattern, SharedProblem, shared_problem
from provision.models.base.arrays import Ints
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs

FEATURES = SHARED_FEATURES - {"variants"} | {"max_throughput", "full_batches"}
"""The features of instances that methods for throughput on shared GPUs take."""
MOST_NODES = 20_000
"""Nodes of the search for a set's best operating points; a few hundred nearly always prove them."""


@dataclass(frozen=True)
class ThroughputProblem(SharedProblem):
    """A SharedProblem in which the value of a pattern is its throughput; it has Choices for every pool of its fleet.

    ``known`` holds, for each pattern, the best BestPoints so far and the nodes of the search that found them.
    """

    choices_of_groups: tuple[Choices, ...]
    known: dict[Pattern, tuple[BestPoints, int]] = field(default_factory=dict)

    def found(self, pattern: Pattern, nodes: int = MOST_NODES) -> BestPoints:
        """The best operating points of a pattern after a search of at least ``nodes`` nodes."""
        if pattern not in self.known or self.known[pattern][1] < nodes:
            pool, members = pattern
            found = most_throughput(self.choices_of_groups[pool], np.array(members), nodes)
            exact = found.bound <= found.value * (1 + CLOSE)
            self.known[pattern] = found, MOST_NODES if exact else nodes
        return self.known[pattern][0]

    def settled(self, pattern: Pattern) -> bool:
        """Whether the best operating points of a pattern are proven, or the search has spent all its nodes."""
        return pattern in self.known and self.known[pattern][1] >= MOST_NODES

    def value(self, patterns: Iterable[Pattern], nodes: int = MOST_NODES) -> float:
        """Total requests/s of patterns; if some have no operating points, NOTHING times their number."""
        values = [self.found(pattern, nodes).value for pattern in patterns]
        return NOTHING * values.count(NOTHING) if NOTHING in values else sum(values)

    def chosen(self, pattern: Pattern) -> Ints:
        """(members, 2) the best known operating points, positions of units and batch; else any feasible ones."""
        found = self.found(pattern, 1)
        if found.value > NOTHING:
            return found.points
        tables, points = self.fleet.pools[pattern[0]].tables, super().chosen(pattern)
        return np.column_stack([tables.units[points], tables.batch[points]]) - 1

    def _replica(self, pool: GpuPool, point: Any, part: int) -> Replica:
        workload, rate_rps = self.classes.parts[part]
        unit, batch = point.tolist()
        shares = shares_of(pool.tables.unit_share)
        return Replica(
            workload=self.instance.workloads[workload].name, batch=batch + 1, sm_share=float(shares[unit]),
            rate_rps=rate_rps,
        )


def throughput_problem(instance: Instance) -> ThroughputProblem:
    """The ThroughputProblem of an instance with no more than FEATURES."""
    plain = shared_problem(instance)
    choices_of_groups = tuple(choices_of(instance, pool.gpu, plain.classes.demands) for pool in plain.fleet.pools)
    return ThroughputProblem(instance, plain.classes, plain.fleet, choices_of_groups)


def is_shared_throughput(instance: Instance) -> bool:
    """Whether the instance asks for throughput under interference, and for no more than FEATURES."""
    asked = needs(instance)
    return {"interference", "max_throughput"} <= asked <= FEATURES and not instance.policy.rule.random_arrivals

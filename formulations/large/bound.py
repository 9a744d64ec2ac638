"""A bound for many workloads under interference, from pooled demand.

The workloads of a class get its longest SLO, and their rates are added up. A replica counts for at most the highest
rate of its class. In every plan, patterns (replicas that share a GPU) carry this pooled demand, so the linear program
over all patterns is a relaxation. It has a row for each class, whatever the number of workloads. Patterns are priced
as in `provision.formulations.master.rates`, and every round proves a bound (`type_counts`). Further rounds divide the
workloads into more classes, which tightens the relaxation.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.bounds.type_counts import TypeCounts
from provision.formulations.large.classes import WorkloadClass
from provision.formulations.master.rates.columns import RateColumns, Relaxed
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.mps.rates import InterferencePatterns, whole_gpu_patterns
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.problem.instance import Instance


def patterns_of(problem: Problem) -> list[tuple[int, InterferencePatterns]]:
    """Pairs (slice type, its patterns) of a Problem whose GPUs are all shared under interference."""
    types = problem.segments.slice_types
    return [(one.slice_type, whole_gpu_patterns(problem, types[one.slice_type], one.data)) for one in problem.shareable]


class LargeBound:
    """The relaxation over some classes. ``proof`` holds the proven bound.

    Parameters
    ----------
    instance
        The problem.
    classes
        Classes of all its workloads that need a replica.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass]) -> None:
        self.problem = Problem(instance, [one.group(longest=True) for one in classes], relaxed_problem=True)
        self.master, self.oracles = RateColumns(self.problem), patterns_of(self.problem)
        self.master.all = self.master.all._replace(rps=np.array([one.rates_rps.sum() for one in classes]))
        self.proof, self.effort, self.took_s = TypeCounts(self.problem.pools, self.problem.most_gpus), 0, 0.0
        self.gap = 1.0
        for slice_type, one in self.oracles:
            self.master.add(slice_type, one.listed())

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Yield the proven bound, in units of price, after every round of pricing.

        The rounds end when the bound is close to the linear program's value, or when the next round would take too
        long. The first round always runs.
        """
        found = self.master.relaxed(self.master.all)
        while found is not None and (self.gap == 1 or self.took_s < until.left_s):
            watch, patterns = Stopwatch(), len(self.master.slice_type)
            self._price(found)
            self.took_s = watch.elapsed_s
            self.gap = 1 - self.proof.bound / max(found.value * self.problem.dearest, self.proof.bound, 1e-9)
            yield self.proof.bound
            if self.gap <= SCHEDULE.used:
                return
            if len(self.master.slice_type) == patterns:
                self.effort += 1
                self.took_s *= SCHEDULE.longer
                if self.effort > max(one.hardest for _, one in self.oracles):
                    return
            found = self.master.relaxed(self.master.all, begin=found.patterns[found.parts > 0])

    def _price(self, at: Relaxed) -> None:
        """Add the patterns that improve the linear program, and prove a bound at its duals."""
        most, free = self.master.best(at), np.full(len(at.per_rps), math.inf)
        for slice_type, oracle in self.oracles:
            floor = max(at.slices[slice_type] * (1 + SCHEDULE.slight), most[slice_type])
            found = oracle.price(GroupPrices(at.per_rps, at.bonus, free), floor, self.effort)
            most[slice_type] = max(most[slice_type], found.most)
            better = np.flatnonzero(self.master.worth(at, found.patterns) > floor)
            self.master.add(slice_type, found.patterns.only(better))
        full = [float((pool.partitions @ most).max()) for pool in self.problem.pools]
        self.proof.add_prices(at.asked, full)

"""The walk of `lns` over plans of shared GPUs, in which all replicas have a place at any time.

Each step takes a few GPUs apart, preferably emptier ones, and packs their replicas again: in an order that is random
around hardest first, onto GPU types that are random around the cheapest. A lower price of all GPUs is better; at the
same price, free units on few GPUs are better than on many.
"""

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.shared_plans import Pattern, SharedProblem
from provision.heuristics.core.schedule import GpuSchedule
from provision.heuristics.core.shared_greedy import costs_of, packed, patterns_in, types_of
from provision.heuristics.core.shared_packing import Packing, empty_packing, put
from provision.heuristics.core.shared_search import ruin_and_recreate
from provision.models.plans.plan import Plan

SCHEDULE = GpuSchedule()


class SharedWalk:
    """Packings being improved, and the ``best`` patterns so far.

    Parameters
    ----------
    problem
        The SharedProblem.
    start
        A Plan to begin with; None for the greedy one.
    draw
        Of random numbers.
    """

    def __init__(self, problem: SharedProblem, start: Plan | None, draw: np.random.Generator) -> None:
        self.problem, self.draw = problem, draw
        self.types, self.costs = types_of(problem), costs_of(problem)
        self.best = problem.patterns(start) or packed(problem)
        self.packings = self._packings()

    @property
    def ended(self) -> bool:
        """Whether nothing is cheaper than the best patterns."""
        return self.problem.cost(self.best) <= min(self.problem.fleet.prices)

    @property
    def value(self) -> float | None:
        """The objective of the best patterns; None where the fleet has too few GPUs for them."""
        cost = self.problem.cost(self.best)
        return self.problem.fleet.objective(cost) if cost <= self.problem.dearest else None

    def step(self, steps: int) -> bool:
        """Ruin and recreate; returns whether there are better patterns."""
        before = tuple(Packing(*map(np.copy, packing)) for packing in self.packings)
        ruin_and_recreate(self.types, self.packings, before, self.costs, steps, SCHEDULE, self.draw)
        found = patterns_in(self.packings) + self.kept
        better = self.problem.cost(found) < self.problem.cost(self.best)
        self.best = found if better else self.best
        return better

    def _packings(self) -> tuple[Packing, ...]:
        """The best patterns as packings with an empty GPU, or with one per replica where there are several types.

        Patterns whose operating points packing does not find are ``kept`` as they are.
        """
        spare = 1 if len(self.types) == 1 else len(self.problem.classes.parts)
        packings = tuple(map(empty_packing, [many + spare for many in self.problem.used(self.best)], self.types))
        self.kept: list[Pattern] = []
        for slice_type, members in self.best:
            packing = packings[slice_type]
            gpu = np.flatnonzero(packing.size == 0)[0]
            for one in members:
                put(self.types[slice_type], packing, gpu, one, self.costs.least[slice_type, one])
            if packing.used[gpu] == NONE:
                packing.size[gpu] = packing.used[gpu] = 0
                self.kept.append((slice_type, members))
        return packings

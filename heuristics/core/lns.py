"""Ruin and recreate (Schrimpf et al. 2000; large neighbourhood search, Shaw 1998) on plans of shared GPUs.

The search begins with ``control.start`` or the greedy plan. Each step takes a few GPUs apart, preferably emptier ones,
and packs their replicas again: in an order that is random around hardest first, onto GPU types that are random around
the cheapest. A lower price of all GPUs is better; at the same price, free units on few GPUs are better than on many.
"""

from time import perf_counter
from typing import Any

import numpy as np

from provision.heuristics.core.shared_greedy import costs_of, packed, patterns_in, types_of
from provision.heuristics.core.shared_packing import Packing, empty_packing, put
from provision.heuristics.core.shared_search import ruin_and_recreate
from provision.models.contents.interference.kernels import NONE
from provision.models.contents.interference.shared_plans import (
    FEATURES,
    Pattern,
    SharedProblem,
    plan_shared,
    shared_problem,
)
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

NAME = "lns"
MOST_GPUS = 4
"""Most GPUs that a step takes apart."""
EAGER = 0.3
"""Weight of a GPU's free units against its growth."""
CHUNK_S = 0.1
"""About how long compiled steps run before the clock and Ctrl-C are checked."""


def solve(instance: Instance, control: Search) -> Outcome:
    """Search until the time or ``iterations`` are over; Ctrl-C returns the best plan so far."""
    def search(problem: SharedProblem, started: float) -> tuple[list[Pattern], dict[str, Any]]:
        found = _Search(problem, control)
        try:
            termination: Termination = found.run(started + control.time_limit_s)
        except KeyboardInterrupt:
            termination = "stopped"
        return found.best, {"status": "feasible", "termination": termination}

    return plan_shared(instance, NAME, search, shared_problem)


class _Search:
    """Packings being improved, and the best patterns so far."""

    def __init__(self, problem: SharedProblem, control: Search) -> None:
        self.problem, self.control = problem, control
        self.types, self.costs = types_of(problem), costs_of(problem)
        self.best = problem.patterns(control.start) or packed(problem)
        self.packings = self._packings()
        self._tell()

    def run(self, deadline: float) -> Termination:
        """Search until the deadline; returns why it ended."""
        limited = self.control.parameters.get("iterations") is not None
        left, steps = self.control.positive("iterations", int) if limited else np.inf, 1
        draw, lowest = np.random.default_rng(self.control.seed), min(self.problem.fleet.prices)
        while left > 0 and self.problem.cost(self.best) > lowest:
            now = perf_counter()
            if now >= deadline:
                return "time_limit"
            many = int(min(steps, left))
            before = tuple(Packing(*map(np.copy, packing)) for packing in self.packings)
            ruin_and_recreate(self.types, self.packings, before, self.costs, many, MOST_GPUS, EAGER, draw)
            left -= many
            steps = max(int(many * min(CHUNK_S / (perf_counter() - now), 2)), 1)
            self._keep()
        return "completed"

    def _keep(self) -> None:
        found = patterns_in(self.packings) + self.kept
        if self.problem.cost(found) < self.problem.cost(self.best):
            self.best = found
            self._tell()

    def _packings(self) -> tuple[Packing, ...]:
        """The best patterns as packings with an empty GPU, or with one per replica where there are several types.

        Patterns whose operating points packing does not find are ``kept`` as they are.
        """
        spare = 1 if len(self.types) == 1 else len(self.problem.classes.parts)
        packings = tuple(map(empty_packing, [many + spare for many in self.problem.used(self.best)], self.types))
        self.kept: list[Pattern] = []
        for kind, members in self.best:
            packing = packings[kind]
            gpu = np.flatnonzero(packing.size == 0)[0]
            for one in members:
                put(self.types[kind], packing, gpu, one, self.costs.least[kind, one])
            if packing.used[gpu] == NONE:
                packing.size[gpu] = packing.used[gpu] = 0
                self.kept.append((kind, members))
        return packings

    def _tell(self) -> None:
        cost = self.problem.cost(self.best)
        stands = cost <= self.problem.dearest
        self.control.report(Incumbent(self.problem.fleet.objective(cost) if stands else None, None))


METHODS = (
    Method(
        name=NAME,
        summary="ruin and recreate for workloads that share GPUs, from the greedy plan or a given one",
        run=solve,
        compiled=True,
        source="this package; Schrimpf et al. 2000",
        features=FEATURES,
        parameters={"iterations": None},
    ),
)

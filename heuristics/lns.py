"""Ruin and recreate (Schrimpf et al. 2000; large neighbourhood search, Shaw 1998) on plans of shared GPUs.

Begins with ``control.start`` or the greedy plan; takes a few GPUs apart, rather the emptier ones, and packs their
replicas again in an order that is random around hardest first. Fewer GPUs, and of equally many uneven free units,
are better.
"""

from time import perf_counter

import numpy as np

from provision.heuristics.shared_greedy import least_units, packed, patterns_in
from provision.heuristics.shared_packing import Packing, empty_packing, pack
from provision.heuristics.shared_search import ruin_and_recreate
from provision.models.method import Incumbent, Method
from provision.models.shared_plans import FEATURES, plan_shared

NAME = "lns"
MOST_GPUS = 4
"""GPUs taken apart at a time."""
EAGER = 0.3
"""Weight of a GPU's free units against its growth."""
CHUNK_S = 0.1
"""Compiled steps go on for about so long before the clock, and Ctrl-C, are looked at."""


def solve(instance, control):
    """Search until the time or ``iterations`` are over; Ctrl-C returns the best plan so far."""
    def search(problem, started):
        found = _Search(problem, control)
        try:
            termination = found.run(started + control.time_limit_s)
        except KeyboardInterrupt:
            termination = "stopped"
        return found.best, {"status": "feasible", "termination": termination}

    return plan_shared(instance, NAME, search)


class _Search:
    """A packing being improved, and the best patterns so far."""

    def __init__(self, problem, control):
        self.problem, self.control, self.least = problem, control, least_units(problem.tables)
        self.best = problem.patterns(control.start) or packed(problem)
        self.packing = self._packing()
        self._tell()

    def run(self, deadline):
        """Search until the deadline; returns why it ended."""
        left, steps = self.control.parameters.get("iterations") or np.inf, 1
        draw = np.random.default_rng(self.control.seed)
        while left > 0 and len(self.best) > 1:
            now = perf_counter()
            if now >= deadline:
                return "time_limit"
            many = int(min(steps, left))
            ruin_and_recreate(self.problem.tables, self.packing, self.least, many, MOST_GPUS, EAGER, draw)
            left -= many
            steps = max(int(many * min(CHUNK_S / (perf_counter() - now), 2)), 1)
            self._keep()
        return "completed"

    def _keep(self):
        if (self.packing.size > 0).sum() < len(self.best):
            self.best = patterns_in(self.packing)
            self._tell()

    def _packing(self):
        """The best patterns as a packing, with a GPU to spare."""
        packing = empty_packing(len(self.best) + 1, self.problem.tables)
        for gpu, pattern in enumerate(self.best):
            one = Packing(*(column[gpu : gpu + 1] for column in packing))
            pack(self.problem.tables, one, np.array(pattern), self.least, EAGER)
        return packing

    def _tell(self):
        weight = self.problem.instance.weight(self.problem.instance.fleet[0])
        self.control.report(Incumbent(len(self.best) * weight, None))


METHODS = (
    Method(
        name=NAME,
        summary="ruin and recreate for workloads that share GPUs, from the greedy plan or a given one",
        run=solve,
        source="this package; Schrimpf et al. 2000",
        features=FEATURES,
        parameters={"iterations": None},
    ),
)

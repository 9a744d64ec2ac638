"""Most throughput on a fixed fleet under interference, exactly: InSS's problem (1) on iGniter's model.

Every GPU takes a set of replicas, and the value of a set is the highest throughput of its operating points (``boxes``).
Replicas that cannot share a GPU cannot share it with further ones either, so all possible sets are listed from smaller
to larger. An integer program chooses sets of the highest total value in which every replica stands once, on no more
GPUs than there are. At first the value of a set is an upper bound; the exact values of the chosen sets are then
computed and the program is solved again, until all chosen sets have exact values. These are optimal.

The bound holds for one replica per workload, as in the paper: it is given when every workload says ``max_replicas: 1``.
"""

from collections.abc import Collection, Sequence
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult

from provision.formulations.linear.dual_bound import safe_most
from provision.formulations.linear.highs import milp
from provision.formulations.master.throughput_bound import throughput_bound
from provision.models.base.errors import UnsupportedError
from provision.models.contents.interference.boxes import NOTHING
from provision.models.contents.interference.shared_plans import Pattern, plan_shared
from provision.models.contents.interference.throughput_plans import (
    BOXES,
    FEATURES,
    ThroughputProblem,
    throughput_problem,
)
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Incumbent, Outcome, Search

NAME = "patterns-throughput"
MOST_SETS = 20_000
"""The search gives up when more sets than this can share a GPU."""
TOO_SMALL = "the workloads do not fit on so few GPUs; objective min_gpus tells how many they take"
INFEASIBLE = 2
"""SciPy's status."""
SEARCHES = (200, 2000, BOXES)
"""Limits on the boxes of the search for a set's operating points, tried in turn as long as time is left."""
LATE = "no plan found in time"
TOO_MANY = f"more than {MOST_SETS} sets of workloads can share a GPU, too many to list; use greedy"


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan until proved or out of time; Ctrl-C returns the best so far.

    Raises
    ------
    UnsupportedError
        When the objective is another.
    """
    if instance.objective != THROUGHPUT:
        raise UnsupportedError(f"method {NAME} plans for objective {THROUGHPUT}; use auto or patterns")

    def search(problem: ThroughputProblem, started: float) -> tuple[list[Pattern] | None, dict[str, Any]]:
        run = _Run(problem, control, started + control.time_limit_s)
        try:
            termination, reason = run.search()
        except KeyboardInterrupt:
            termination, reason = "stopped", "stopped before a plan was found"
        return run.best, run.told(termination, reason)

    return plan_shared(instance, NAME, search, throughput_problem)


class _Run:
    """The search on one problem: the best sets so far with their value, and the bound."""

    def __init__(self, problem: ThroughputProblem, control: Search, deadline: float) -> None:
        self.problem, self.control, self.deadline = problem, control, deadline
        self.best: list[Pattern] | None = None
        self.value: float | None = None
        self.bound = throughput_bound(problem)
        self._tell()

    def search(self) -> tuple[str, str]:
        """Search; returns the termination and, should there be no plan, the reason."""
        sets = self._listed()
        if sets is None:
            return ("time_limit", LATE) if self._late() else ("completed", TOO_MANY)
        while not self._late():
            found = self._chosen(sets)
            if found.status == INFEASIBLE:
                return "infeasible", TOO_SMALL
            if found.x is None:
                break
            self.bound = min(self.bound, safe_most(found))
            taken = np.repeat(np.arange(len(sets)), np.round(found.x).astype(int))
            if not self._settle([sets[at] for at in taken]):
                return "completed", "the best sets of workloads hold no more than loosely"
        return "time_limit", LATE

    def told(self, termination: str, reason: str) -> dict[str, Any]:
        """The fields of the Outcome; the search proves something only for one replica per workload."""
        whole = self.problem.classes.whole
        if termination == "infeasible":
            status, termination = ("infeasible", "proved") if whole else ("unknown", "completed")
            return {"status": status, "termination": termination, "reason": reason}
        status = "feasible" if self.best else "unknown"
        if self.problem.instance.proved(self.value, self._told_bound):
            status, termination = "optimal", "proved"
        return {"status": status, "termination": termination, "bound": self._told_bound,
                "reason": "" if self.best else reason}

    @property
    def _told_bound(self) -> float | None:
        """The bound on the objective, None where it does not hold."""
        return self.bound if self.problem.classes.whole else None

    def _listed(self) -> list[Pattern] | None:
        """All sets that can share a GPU, as patterns; None when they are too many or time is up."""
        counts = self.problem.classes.counts
        found: list[Pattern] = []
        for supply in range(len(self.problem.fleet.supplies)):
            grown: list[tuple[int, ...]] = [()]
            can_be: set[tuple[int, ...]] = {()}
            for members in grown:
                for one in range(members[-1] if members else 0, len(counts)):
                    larger = (*members, one)
                    if members.count(one) < counts[one] and self._can_be(supply, larger, can_be):
                        grown.append(larger)
                        can_be.add(larger)
                if len(found) + len(grown) > MOST_SETS or self._late():
                    return None
            found += [(supply, members) for members in grown[1:]]
        return found

    def _can_be(self, supply: int, members: tuple[int, ...], can_be: Collection[tuple[int, ...]]) -> bool:
        """Whether a set can share a GPU; ``can_be`` holds all smaller sets that can."""
        smaller = (members[:at] + members[at + 1 :] for at in range(len(members)))
        return all(one in can_be for one in smaller) and self.problem.found((supply, members), 1).bound > NOTHING

    def _chosen(self, sets: Sequence[Pattern]) -> OptimizeResult:
        """SciPy's result for sets of the most worth, by their bounds, in which every replica stands once."""
        classes, supplies = self.problem.classes, self.problem.fleet.supplies
        worth = np.array([self.problem.found(pattern, 1).bound for pattern in sets])
        holds = np.array([np.bincount(members, minlength=len(classes.counts)) for _, members in sets]).T
        of_supply = np.array([[kind == supply for kind, _ in sets] for supply in range(len(supplies))], float)
        return milp(
            -worth, integrality=np.ones(len(sets), int), bounds=Bounds(0, np.where(worth > NOTHING, np.inf, 0)),
            constraints=[LinearConstraint(holds, classes.counts, classes.counts),
                         LinearConstraint(of_supply, ub=[supply.count or 0 for supply in supplies])],
            options={"time_limit": max(self.deadline - perf_counter(), 0.1), "mip_rel_gap": 0.0},
        )

    def _settle(self, taken: list[Pattern]) -> bool:
        """Compute the exact value of sets and keep them if they are better; returns whether some value was open."""
        open_ = [pattern for pattern in set(taken) if not self.problem.settled(pattern)]
        for pattern, boxes in product(open_, SEARCHES):
            if not self._late():
                self.problem.found(pattern, boxes)
        value = self.problem.value(taken, boxes=1)
        if value > 0 and (self.value is None or value > self.value):
            self.best, self.value = taken, value
        self._tell()
        return bool(open_)

    def _late(self) -> bool:
        return perf_counter() > self.deadline

    def _tell(self) -> None:
        self.control.report(Incumbent(self.value, self._told_bound))


METHODS = (
    Method(
        name=NAME,
        summary="most throughput of shared GPUs: sets of workloads, proven for one replica per workload",
        run=solve,
        compiled=True,
        exact=True,
        source="this package; InSS, problem (1)",
        features=FEATURES,
    ),
)

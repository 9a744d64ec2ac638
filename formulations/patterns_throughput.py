"""Most throughput on a fixed fleet under interference, exactly: InSS's problem (1) on iGniter's model.

Replicas are dealt to the GPUs in sets. A set is worth the most throughput of its operating points (``igniter_boxes``).
What cannot share a GPU cannot with more beside it either, so sets that can are listed from the smaller to the larger.
An integer program takes sets of the most worth in which every replica stands once, on no more GPUs than there are.
Sets are worth their bounds at first; the exact worth of those taken is found and the program solved again, until it
takes sets of exact worth alone: these are the best.

The bound holds for one replica per workload, as in the paper: it is given when every workload says ``max_replicas: 1``.
"""

from time import perf_counter

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.formulations.dual_bound import safe_most
from provision.formulations.throughput_bound import throughput_bound
from provision.models.igniter_boxes import NOTHING
from provision.models.method import Incumbent, Method
from provision.models.shared_plans import plan_shared
from provision.models.throughput_plans import FEATURES, throughput_problem

NAME = "patterns-throughput"
MOST_SETS = 20_000
"""More sets are not listed."""
TOO_SMALL = "the fleet is too small to serve every workload; objective min_gpus tells how many GPUs it takes"
LATE = "no plan found in time"
TOO_MANY = f"more than {MOST_SETS} sets of workloads can share a GPU, too many to list; use greedy"


def solve(instance, control):
    """Plan until proved or out of time; Ctrl-C returns the best so far."""
    def search(problem, started):
        run = _Run(problem, control, started + control.time_limit_s)
        try:
            termination, reason = run.search()
        except KeyboardInterrupt:
            termination, reason = "stopped", "stopped before a plan was found"
        return run.best, run.told(termination, reason)

    return plan_shared(instance, NAME, search, throughput_problem)


class _Run:
    """The search on one problem: the best sets so far with their value, and the bound."""

    def __init__(self, problem, control, deadline):
        self.problem, self.control, self.deadline = problem, control, deadline
        self.best, self.value, self.bound = None, None, throughput_bound(problem)
        self._tell()

    def search(self):
        """Why the search ends, and the reason for ending without a plan."""
        sets = self._listed()
        if sets is None:
            return ("time_limit", LATE) if perf_counter() > self.deadline else ("completed", TOO_MANY)
        while perf_counter() < self.deadline:
            taken = self._taken(sets)
            if taken is None:
                return "infeasible", TOO_SMALL
            open_ = [pattern for pattern in set(taken) if not self.problem.settled(pattern)]
            for pattern in open_:
                self.problem.found(pattern)
            self._note(taken)
            if not open_:
                return "completed", "the best sets of workloads hold no more than loosely"
        return "time_limit", LATE

    def told(self, termination, reason):
        """The end of the search as fields of an Outcome."""
        proved = self.problem.instance.proved(self.value, self._told_bound)
        if termination == "infeasible":
            proved = self.problem.classes.whole
            status, termination = "infeasible" if proved else "unknown", "completed"
        else:
            status = "optimal" if proved else "unknown" if self.best is None else "feasible"
        return {"status": status, "termination": "proved" if proved else termination, "bound": self._told_bound,
                "reason": "" if self.best else reason}

    @property
    def _told_bound(self):
        """The bound on the objective, None where it does not hold."""
        return self.bound if self.problem.classes.whole else None

    def _listed(self):
        """All sets that can share a GPU, as patterns; None when they are too many or time is up."""
        counts, found = self.problem.classes.counts, []
        for stock in range(len(self.problem.fleet.stocks)):
            grown, can_be = [()], {()}
            for members in grown:
                for one in range(members[-1] if members else 0, len(counts)):
                    larger = (*members, one)
                    if members.count(one) < counts[one] and self._can_be(stock, larger, can_be):
                        grown.append(larger)
                        can_be.add(larger)
                if len(found) + len(grown) > MOST_SETS or perf_counter() > self.deadline:
                    return None
            found += [(stock, members) for members in grown[1:]]
        return found

    def _can_be(self, stock, members, can_be):
        """Whether a set can share a GPU, when it is known which of the smaller sets can."""
        smaller = (members[:at] + members[at + 1 :] for at in range(len(members)))
        return all(one in can_be for one in smaller) and self.problem.found((stock, members), 1).bound > NOTHING

    def _taken(self, sets):
        """Sets of the most worth by their bounds, in which every replica stands once; None when there are none.

        Notes the bound on all that can be taken.
        """
        classes, stocks = self.problem.classes, self.problem.fleet.stocks
        worth = np.array([self.problem.found(pattern, 1).bound for pattern in sets])
        holds = np.array([np.bincount(members, minlength=len(classes.counts)) for _, members in sets]).T
        of_stock = np.array([[kind == stock for kind, _ in sets] for stock in range(len(stocks))], float)
        found = milp(
            -worth, integrality=np.ones(len(sets)), bounds=Bounds(0, np.where(worth > NOTHING, np.inf, 0)),
            constraints=[LinearConstraint(holds, classes.counts, classes.counts),
                         LinearConstraint(of_stock, ub=[stock.count for stock in stocks])],
            options={"time_limit": max(self.deadline - perf_counter(), 0.1), "mip_rel_gap": 0.0},
        )
        self.bound = min(self.bound, safe_most(found))
        if found.x is None:
            return None
        return [pattern for pattern, many in zip(sets, np.round(found.x).astype(int), strict=True) for _ in range(many)]

    def _note(self, taken):
        """Keep sets that are better than the best so far, and tell."""
        value = self.problem.value(taken)
        if value > 0 and (self.value is None or value > self.value):
            self.best, self.value = taken, value
        self._tell()

    def _tell(self):
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

"""Patterns: set covering by column generation over what can stand on one GPU under interference.

The linear program over all patterns (Gilmore and Gomory 1961) is solved by pricing that holds iGniter's model
inside (``pricing``), for every GPU type; its duals pi give, whatever the patterns so far, the bound sum(pi) / v of
Farley (1990), v being no less than the value of any pattern; ``type_counts`` has it for several types, prices and
limited counts. All are sums of whole numbers, and pricing forgives more than the verifier does, so the bound is safe
to round up. A plan comes from the integer program over columns of small reduced cost, at large
sizes with the whole parts of the linear solution fixed.

Large instances have their classes merged (``coarse``) for the linear program. Its duals, spread over the classes
themselves and priced there, still prove a bound.

The bound holds for plans with one replica per workload, as in the paper: it is given when every workload says
``max_replicas: 1``, and is None otherwise.
"""

from math import inf
from time import perf_counter

import numpy as np

from provision.formulations.master.coarse import coarse
from provision.formulations.master.columns import Columns, prove
from provision.formulations.master.type_counts import TypeCounts
from provision.models.contents.interference.shared_plans import FEATURES, plan_shared
from provision.models.problem.method import Method
from provision.models.problem.search import Incumbent

NAME = "patterns"
PLAN_CLASSES = 1000
"""Classes are merged to about so many for the linear program."""
PRICING_SHARE = 0.6
"""Part of the time left that columns may take before a plan is made."""
REDUCED_COST = 0.02
"""Columns of more reduced cost are left out of the integer program."""
MIP_SHARE = 0.8
"""Part of the time left that an integer program may take."""
FIX_FROM = 1500
"""With so many replicas, the whole parts of the linear solution are fixed."""
MOST_COLUMNS = 2000
"""With fewer, none is left out."""
VARIED = 20
"""How often columns are sought around the duals before a plan counts as the best to be had."""
RESERVE = 2e-4
"""Seconds per replica that matching and writing the plan take."""


def solve(instance, control):
    """Plan until proved or out of time; Ctrl-C returns the best so far."""
    def search(problem, started):
        run = _Run(problem, control, started + control.time_limit_s - RESERVE * len(problem.classes.parts))
        try:
            termination = run.search()
        except KeyboardInterrupt:
            termination = "stopped"
        if run.infeasible:
            run.improve()  # to say what is missing
            return run.best, {"status": "infeasible", "termination": "proved"}
        status, termination = ("optimal", "proved") if run.proved else ("feasible", termination)
        return run.best, {"status": status, "termination": termination, "bound": run.told_bound}

    return plan_shared(instance, NAME, search)


class _Run:
    """Column generation on one problem: the best patterns, and the bound in units of price, so far."""

    def __init__(self, problem, control, deadline):
        self.problem, self.control, self.deadline = problem, control, deadline
        classes, fleet = problem.classes, problem.fleet
        self.best = problem.patterns(control.start) or problem.alone()
        self.cost, self.bound, self.spread = problem.cost(self.best), min(fleet.prices), None
        self.merged = coarse(classes, PLAN_CLASSES)
        self.exact = self.merged.demands == classes.demands
        self.columns = Columns(fleet if self.exact else fleet.with_tables(problem.instance, self.merged.demands),
                               self.merged, self.exact)
        self.proof = self.columns.proof if self.exact else TypeCounts(fleet.stocks, len(classes.parts))
        if self.exact:
            self.columns.master.add(self.best)
        self._tell()

    @property
    def told_bound(self):
        """The bound on the objective, None where it does not hold."""
        return self.problem.fleet.objective(self.bound) if self.problem.classes.whole else None

    @property
    def proved(self):
        """Whether no plan can be better."""
        return self.problem.classes.whole and (self.cost <= self.bound or self.infeasible)

    @property
    def infeasible(self):
        """Whether every plan takes GPUs that the fleet has not."""
        return self.problem.classes.whole and self.bound == inf

    def search(self):
        """Columns and plans in turn until proved, out of time, or neither can improve; returns why."""
        draw, varied = np.random.default_rng(self.control.seed), 0
        while not self.proved:
            for _ in self.columns.rounds(perf_counter() + self._left() * PRICING_SHARE):
                self._raise()
                if self.proved:
                    return "proved"
            if self._left() <= 0:
                return "time_limit"
            self._bound_from_merged()
            if not self.improve():
                if varied >= VARIED and self.columns.converged:
                    return "completed"
                varied += 1
                self.columns.vary(draw)
        return "proved"

    def improve(self):
        """A plan from the columns at hand; returns whether it is better."""
        _, _, _, parts, costs = self.columns.master.relaxed()
        kept = [(pattern, part) for pattern, part, cost in zip(self.columns.master.patterns, parts, costs, strict=True)
                if cost <= REDUCED_COST or len(costs) < MOST_COLUMNS]
        fixed = np.floor([part + 1e-6 for _, part in kept]) * (self.merged.counts.sum() >= FIX_FROM)
        seconds = max(self._left() * MIP_SHARE, 0.1)
        found = self.columns.master.integral([pattern for pattern, _ in kept], fixed, seconds)
        if found is None:
            return False
        patterns = self.problem.matched(found, self.merged.demands)
        cost = self.problem.cost(patterns)
        better = cost < self.cost and all(map(self._stands, set(patterns)))
        if better:
            self.best, self.cost = patterns, cost
            self._tell()
        return better

    def _bound_from_merged(self):
        """The bound of the latest duals of merged classes, spread over all classes."""
        duals = self.columns.duals
        if not self.exact and duals is not self.spread:
            self.spread = duals
            spread = self.merged.spread(self.problem.classes, duals)
            prove(self.problem, self.proof, spread, self.columns.prices)
            self._raise()

    def _left(self):
        return self.deadline - perf_counter()

    def _stands(self, pattern):
        return self.problem.points(pattern) is not None

    def _raise(self):
        if self.proof.bound > self.bound:
            self.bound = self.proof.bound
            if not self.infeasible:
                self._tell()

    def _tell(self):
        stands = self.cost <= self.problem.dearest
        self.control.report(Incumbent(self.problem.fleet.objective(self.cost) if stands else None, self.told_bound))


METHODS = (
    Method(
        name=NAME,
        summary="column generation over patterns of shared GPUs, proven for one replica per workload",
        run=solve,
        compiled=True,
        exact=True,
        source="this package; Gilmore and Gomory 1961, Farley 1990",
        features=FEATURES,
    ),
)

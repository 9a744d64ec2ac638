"""Assignment on explicit GPUs: the instances that it takes, and the search that CP-SAT and PuLP share.

First, rows are rounded so that they exclude no feasible plan. The solver's bound is then a bound on the instance. A
plan found this way is nearly always feasible by the exact numbers, and is then kept. If it is not, the rows are rounded
so that they admit no infeasible plan, and solved again. Where batch times on shared slices depend on the rates, the
first rows are a relaxation and the second rows exclude some plans. A gap between bound and plan may then remain. So
there a program over partition counts, which does not tell GPUs apart, gives a bound before the search (see
`provision.formulations.isolated.shared_relaxation`).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from provision.formulations.assignment.candidates import PatternCandidates, every_unrouted
from provision.formulations.assignment.gpus import Ended, Program
from provision.formulations.assignment.network import networks_of
from provision.formulations.assignment.one_replica import PointCandidates, shared_data
from provision.formulations.assignment.patterns import SlicePattern, slice_types_of
from provision.formulations.assignment.sharing import SharingRows
from provision.formulations.assignment.slices import PatternRows
from provision.formulations.assignment.turns import turns_of
from provision.formulations.isolated.shared_relaxation import further_bound, is_relaxed
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.performance.colocation import Colocation
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

MOST_WORKLOADS = 40
"""The most workloads of an instance; see also ``gpus.MOST_GPUS`` and ``interference.MOST_POINT_SETS``."""
LISTING, BOUNDING = 0.3, 0.3
"""The largest fractions of the time that listing patterns at routed rates may take, and the bound by partition counts
if not all patterns are listed.
"""
TAKEN = frozenset({
    "several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas", "max_replicas",
    "max_share_per_gpu", "variants", "interference", "random_interference", "share_slices", "max_throughput",
    "isolated_data", "tokens", "full_batches", "gpulets", "random_turns", "other_sharing",
})
"""The features of instances that the methods take."""


def beginning(instance: Instance) -> str:
    """The method whose plan the search begins with; a known plan bounds the number of GPUs in the model.

    No fast method plans by co-location data.
    """
    if any(isinstance(data, Colocation) for data in instance.performance):
        return "master"
    return "lns" if instance.policy.share_slices else "greedy"


class SmallInstances(Method):
    """A Method that takes instances up to some size."""

    def check(self, instance: Instance) -> None:
        """Refuse instances with features that the method does not take, and instances that are too large.

        Raises
        ------
        UnsupportedError
            The message names the feature or the limit, and a remedy.
        """
        super().check(instance)
        for data in instance.performance:
            if data.sharing == "always" and data.feature == "other_sharing" and not isinstance(data, Colocation):
                raise UnsupportedError(f"method {self.name} cannot plan sharing of slices by performance data of kind "
                                       f"{data.kind}; use --method auto, master, greedy or lns")
        if len(instance.workloads) > MOST_WORKLOADS:
            raise UnsupportedError(f"method {self.name} takes at most {MOST_WORKLOADS} workloads, here are "
                                   f"{len(instance.workloads)}; use --method auto")
        if instance.policy.latency_budget == FULL_BATCHES and not one_point_each(instance):
            raise UnsupportedError(f"method {self.name} plans latency_budget {FULL_BATCHES} where one file per GPU "
                                   "type describes whole GPUs that workloads share; use --method auto")
        if instance.objective == THROUGHPUT and not one_point_each(instance) and any(
            networks_of(instance, slice_type) or turns_of(instance, slice_type)
            for slice_type in slice_types_of(instance)
        ):
            raise UnsupportedError(f"method {self.name} lists slices that workloads share up to their stated rates, "
                                   f"and {THROUGHPUT} asks for more; use --method auto")
        if not one_point_each(instance):
            _unrouted(_ByDigest(instance))


class _ByDigest:
    """An instance as a key of a cache. Keys are compared by the instance's digest."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and self.instance.digest == other.instance.digest

    def __hash__(self) -> int:
        return hash(self.instance.digest)


def candidates_of(instance: Instance, until: Deadline = NEVER) -> PointCandidates | PatternCandidates:
    """The candidates of an instance: operating points if `one_point_each` holds, else patterns of slices.

    Patterns that depend on the rates are listed until a deadline. The other candidates of the last two instances are
    cached.

    Raises
    ------
    UnsupportedError
        If there are too many patterns to list.
    """
    key = _ByDigest(instance)
    return _points(key) if one_point_each(instance) else PatternCandidates(instance, _unrouted(key), until)


@lru_cache(maxsize=2)
def _points(key: _ByDigest) -> PointCandidates:
    return PointCandidates(key.instance)


@lru_cache(maxsize=2)
def _unrouted(key: _ByDigest) -> list[list[SlicePattern]]:
    return every_unrouted(key.instance)


def one_point_each(instance: Instance) -> bool:
    """Whether every workload has exactly one replica, which carries its whole rate; all GPUs are whole, and a single
    file of iGniter or co-location data describes each GPU type; and the latency rule is not for random arrivals.
    """
    gpus = {entry.gpu for entry in instance.fleet}
    files = [data for data in instance.performance if data.gpu in gpus]
    return (
        all(shared_data(instance, entry) for entry in instance.fleet)
        and len({data.gpu for data in files}) == len(files)
        and all(one.max_replicas == 1 and one.max_share_per_gpu == 1 and (one.min_replicas or one.rate_rps)
                for one in instance.workloads)
        and not instance.policy.rule.random_arrivals
    )


def solve(instance: Instance, control: Search, program: Callable[[Search, bool], Program], name: str) -> Outcome:
    """Plan an instance. The plan is proven optimal if the solver finishes in time.

    Parameters
    ----------
    instance, control
        The problem and the search, as for every method.
    program
        Makes a Program (see `provision.formulations.assignment.gpus`) from a Search and ``safe``.
    name
        The method's name.
    """
    candidates = candidates_of(instance, control.within(control.left_s * LISTING))
    status, reason = candidates.hopeless()
    if status:
        return Outcome(status, "proved", reason=reason)
    search = _Search(candidates, control, program, name)
    if search.bound == math.inf:
        return search.too_small()
    rows = search.rows(safe=False)
    build_seconds = control.elapsed_s
    return replace(search.run(rows), build_seconds=build_seconds)


class _Search:
    """The best plan and bound so far, and the steps that improve them. Bounds are on a value that is minimised."""

    def __init__(
        self,
        candidates: PointCandidates | PatternCandidates,
        control: Search,
        program: Callable[[Search, bool], Program],
        name: str,
    ) -> None:
        self.candidates, self.control, self.program, self.name = candidates, control, program, name
        self.instance = candidates.instance
        self.plan: Plan | None = control.start
        self.until = control.within()
        self.bound: float = candidates.bound
        if candidates.loose and is_relaxed(self.instance):
            self.bound = max(self.bound, further_bound(self.instance, BOUNDING * self.until.left_s))

    def rows(self, safe: bool) -> SharingRows | PatternRows:
        """The model with all its rows, and with hints from the plan to begin with."""
        copies = self.candidates.copies(self.control.start)
        candidates, program = self.candidates, self.program(self.control, safe)
        rows = (SharingRows(candidates, copies, program, self.name, self.bound)
                if isinstance(candidates, PointCandidates)
                else PatternRows(candidates, copies, program, self.name, self.bound))
        if self.control.start:
            rows.hint(self.control.start)
        return rows

    def run(self, rows: SharingRows | PatternRows) -> Outcome:
        """Solve ``rows``; if none of the plans found is feasible, solve the safe rows."""
        self._tell()
        if self._proved():
            return self._outcome("optimal")
        limit_s = self.until.left_s
        ended = self._improve(rows, limit_s / 2 if self.candidates.loose else limit_s)
        if ended == "infeasible" and self.plan is None:
            return self.too_small()
        if not self._proved() and (ended == "optimal" or self.candidates.loose):
            ended = self._improve(self.rows(safe=True), self.until.left_s)
        return self._outcome(ended)

    def too_small(self) -> Outcome:
        """The Outcome for a fleet that is proven to be too small."""
        return Outcome(self.candidates.too_small[0], "proved", reason=self.candidates.too_small[1])

    def _improve(self, rows: SharingRows | PatternRows, limit_s: float) -> Ended:
        """Run the solver on ``rows`` once; return how it ended. Better plans are kept, and a better bound if ``rows``
        exclude no plan.
        """
        ended, bound = rows.program.solve(limit_s, lambda value: self._consider(rows.plan(value)))
        if not rows.program.safe and bound is not None:
            self.bound = max(self.bound, bound)
            self._tell()
        return ended

    def _consider(self, plan: Plan | None) -> None:
        """Keep a plan if it is feasible and better than the best so far."""
        value = objective_of(self.instance).value
        if plan is not None and (
            self.plan is None or objective_of(self.instance).better(value(plan), value(self.plan))
        ):
            self.plan = plan
            self._tell()

    @property
    def _told(self) -> float | None:
        """The bound on the objective, in the objective's own sense; None if nothing is proven."""
        return None if math.isinf(self.bound) else objective_of(self.instance).sense * self.bound

    def _tell(self) -> None:
        self.control.report(Incumbent(objective_of(self.instance).value(self.plan) if self.plan else None, self._told))

    def _proved(self) -> bool:
        return self.plan is not None and objective_of(self.instance).proved(
            objective_of(self.instance).value(self.plan), self._told
        )

    def _outcome(self, ended: Ended) -> Outcome:
        if self._proved():
            return Outcome("optimal", "proved", self.plan, self._told)
        termination: Termination = "time_limit" if ended == "time_limit" else "completed"
        if self.plan is None:
            return Outcome("unknown", termination, None, self._told, "no plan found in time")
        return Outcome("feasible", termination, self.plan, self._told)

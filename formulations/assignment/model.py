"""Assignment on explicit GPUs: what it takes, and the search that both twins run.

Rows are first rounded in favour of plans, so what is proven about them is proven about the instance; a plan found so
is kept when it holds exactly. It nearly always does; else the rows are rounded against plans and solved again.
"""

from dataclasses import replace
from time import perf_counter

from provision.formulations.assignment.gpus import TOLERANCE
from provision.formulations.assignment.points import PointCandidates
from provision.formulations.assignment.segments import SegmentCandidates
from provision.models.base.errors import UnsupportedError
from provision.models.contents.interference.tables import one_replica_each
from provision.models.problem.method import FEATURES, Method, needs
from provision.models.problem.search import Incumbent, Outcome

MOST_WORKLOADS = 40
MOST_GPUS = 20
"""Largest instances; beyond a dozen workloads under interference nothing is proven in minutes."""
TAKEN = frozenset(FEATURES) - {"share_slices", "gpulets", "max_throughput"}
NOT_WITH_INTERFERENCE = frozenset({"isolated_data", "max_share_per_gpu", "min_replicas"})
"""What iGniter's model, with one replica per workload, has no room for."""


class SmallInstances(Method):
    """A method for instances of a bounded size."""

    def check(self, instance):
        """Refuse also instances that are too large, and several replicas beside interference.

        Raises
        ------
        UnsupportedError
            Naming the feature or the limit, and the remedy.
        """
        super().check(instance)
        asked = needs(instance)
        if "interference" not in asked and "max_replicas" in asked:
            raise UnsupportedError(f"method {self.name} cannot plan max_replicas; use --method partition-counts")
        odd = sorted(asked & NOT_WITH_INTERFERENCE) if "interference" in asked else []
        if odd:
            what = " and ".join(FEATURES[feature] for feature in odd)
            raise UnsupportedError(f"method {self.name} cannot plan {what} beside interference; leave it out")
        remedy = "patterns or igniter" if "interference" in asked else "partition-counts"
        self._limit("workloads", len(instance.workloads), MOST_WORKLOADS, remedy)
        self._limit("GPUs to choose from", len(candidates_of(instance).copies()), MOST_GPUS, remedy)

    def _limit(self, what, found, most, remedy):
        if found > most:
            told = f"takes at most {most} {what}, here are {found}"
            raise UnsupportedError(f"method {self.name} {told}; use --method {remedy}")


def candidates_of(instance):
    """The candidates of an instance, by its performance data."""
    return (PointCandidates if "interference" in needs(instance) else SegmentCandidates)(instance)


def solve(instance, control, program, name):
    """Plan an instance with the fewest or cheapest GPUs, proven where the solver gets that far.

    Parameters
    ----------
    instance, control
        As for every method.
    program
        Makes a program (see `assignment_gpus`) from a Search and whether to round against plans.
    name
        That of the method.
    """
    started = perf_counter()
    candidates = candidates_of(instance)
    status, reason = candidates.hopeless()
    if status:
        return _none(status, reason, started)
    search = _Search(candidates, control, program, name)
    rows = search.rows(safe=False)
    built = perf_counter()
    outcome = search.run(rows)
    return replace(outcome, build_seconds=built - started, solve_seconds=perf_counter() - built)


def _none(status, reason, started):
    termination = "proved" if status == "infeasible" else "completed"
    return Outcome(status, termination, reason=reason, build_seconds=perf_counter() - started)


class _Search:
    """The best plan and bound so far, and how to better them."""

    def __init__(self, candidates, control, program, name):
        self.candidates, self.control, self.program, self.name = candidates, control, program, name
        self.start = control.start if control.start and candidates.holds(control.start) else None
        self.plan, self.bound = self.start, candidates.bound
        self.until = perf_counter() + control.time_limit_s
        instance = candidates.instance
        self.proves = "interference" not in needs(instance) or one_replica_each(instance)

    def rows(self, safe):
        """The model, begun at the plan that is given."""
        copies = self.candidates.copies(self.start)
        rows = self.candidates.rows(copies, self.program(self.control, safe), self.name)
        if self.start:
            rows.hint(self.start)
        return rows

    def run(self, rows):
        """Search in favour of plans, then where none of these holds against them; Ctrl-C keeps the best."""
        self._tell()
        try:
            ended = self._improve(rows)
            if ended == "optimal" and not self._proved():
                ended = self._improve(self.rows(safe=True))
        except KeyboardInterrupt:
            ended = "stopped"
        if ended == "infeasible" and self.plan is None:
            return _none(*self.candidates.too_small, perf_counter())
        return self._outcome(ended)

    def _improve(self, rows):
        """How the solver ended: optimal, infeasible, stopped, or time_limit."""
        ended, bound = rows.program.solve(self.until - perf_counter(), lambda value: self._consider(rows.plan(value)))
        if not rows.program.safe and bound is not None:
            self.bound = max(self.bound, bound)
            self._tell()
        return ended

    def _consider(self, plan):
        """Keep a plan that holds and is better."""
        value = self.candidates.instance.value
        if (self.plan is None or value(plan) < value(self.plan)) and self.candidates.holds(plan):
            self.plan = plan
            self._tell()

    def _tell(self):
        value = self.candidates.instance.value(self.plan) if self.plan else None
        self.control.report(Incumbent(value, self.bound if self.proves else None))

    def _proved(self):
        if self.plan is None or not self.proves:
            return False
        return self.candidates.instance.value(self.plan) <= self.bound * (1 + TOLERANCE)

    def _outcome(self, ended):
        if self._proved():
            return Outcome("optimal", "proved", self.plan, self.bound)
        termination = ended if ended in ("stopped", "time_limit") else "completed"
        status, reason = ("feasible", "") if self.plan else ("unknown", "no plan found in time")
        return Outcome(status, termination, self.plan, self.bound if self.proves else None, reason)

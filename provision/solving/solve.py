"""``provision.solve``: plans an instance with one method, and verifies the plan."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from provision.instances.files.files import FilePath
from provision.instances.read import read, read_plan
from provision.models.base.clock import Deadline, Stop, Stopwatch
from provision.models.base.errors import InputError, MethodError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.plans.result import Replay, Result
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.executor import IN_PROCESS, Executor
from provision.models.problem.instance import Instance
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import refuse_unequal_rates, states_memory
from provision.models.problem.search import SIGNALS, Incumbent, Outcome, Search, Status, stoppable
from provision.models.traffic.queue_tables import Limited, limited
from provision.solving.methods import method as find_method
from provision.solving.notes import check_size, notes_of
from provision.solving.repair import mended, notes, repaired, replaced, within_memory
from provision.solving.replayed import refuted, replay_of, reports_of, too_many, unsure
from provision.solving.schedule import SOLVE
from provision.solving.staged import planned
from provision.solving.steps import rerated, valid_for, where_able
from provision.solving.worker import Report, Tell, can_fork, told_by
from provision.verification.verify import verify

LONGEST_S = 1e7
"""The longest time limit in seconds."""
COARSE = ("the latency table of these arrivals was coarse, on the safe side, so that nothing is proven; what there was "
          "time for is kept on this machine: solve again for a plan that may be cheaper")
UNPROVEN: Mapping[str, Status] = {"optimal": "feasible", "infeasible": "unknown"}
"""The status of an answer whose proof does not hold."""


def solve(
    instance: Instance | FilePath,
    method: str | Method | Callable[[Instance, Search], Outcome] = "auto",
    time_limit_s: float = 60.0,
    seed: int = 0,
    report: Callable[[Incumbent], None] | None = None,
    start: Plan | FilePath | None = None,
    replay: bool | None = None,
    started: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
    strict: bool = False,
    gap: float = 0.0,
    executor: Executor = IN_PROCESS,
    **parameters: Any,
) -> Result:
    """Plan an instance with one method and verify the plan.

    Parameters
    ----------
    instance
        An Instance, its shipped name or its path.
    method
        Name of a method (see ``provision.methods()``), a Method, or any function that takes an Instance and a
        ``Search`` and returns an ``Outcome``.
    time_limit_s
        Seconds after which a search returns its best plan.
    seed
        Seed of methods that draw random numbers.
    report
        Called with an Incumbent whenever a plan or bound improves. If it raises an exception, the search ends with its
        best plan, and the notes of the result name the exception; without a plan it is raised again.
    start
        A Plan to begin with, or its path, possibly of a similar instance. If it is not valid for this instance, GPUs
        that hold are kept, and greedy plans the rest.
    replay
        Whether to replay the plan under the instance's traffic; by default if the latency rule is for random arrivals.
        A part of the time limit is reserved for replays. Under such a rule ``auto`` also reserves time to repair
        workloads that are late by ``policy.holds``, and a plan that is late in the long run has the status ``refuted``.
        The bound is for the unchanged instance.
    started
        When the time limit began to count, by ``time.perf_counter()``; by default now. Time spent before the call and
        on reading the instance counts too, but half a second is always left for the search, or half of a limit
        below a second.
    tell
        Called after the search with texts that name the current activity, such as ``replaying 3 of 8``.
    strict
        Whether the search runs in a process of its own, which is left if it has not ended soon after the time limit or
        a signal, or if it dies; the result is then the best plan so far. SIGTERM ends it like Ctrl-C. Only on Linux.
    gap
        The search may end when (objective - bound) / objective is no larger than this.
    executor
        Where replays of the plan run; see `provision.executor_of`.
    parameters
        Parameters of the method.

    Returns
    -------
    Result
        In the main thread, Ctrl-C ends the search with its best plan; the termination is then ``stopped``.

    Raises
    ------
    InputError
        For an unknown instance, method or parameter, a gap, time limit or seed out of range, a workflow whose
        workloads have different rates, or an instance that is far too large.
    UnsupportedError
        If the instance has a feature that the method does not support.
    MethodError
        If the verifier rejects a plan that the method claims to be feasible, or if the plan beats the method's bound.
    """
    watch = Stopwatch(started)
    instance = read(instance)
    first = None if start is None else read_plan(start, instance)
    chosen = _chosen(method)
    check_time_limit(time_limit_s)
    if seed < 0:
        raise InputError(f"seed {seed}: must be 0 or more")
    if not 0 <= gap < 1:
        raise InputError(f"gap {gap!r}: should be a fraction from 0 to below 1")
    for name in parameters:
        if name not in chosen.parameters:
            known = ", ".join(chosen.parameters) or "none"
            raise InputError(f"method {chosen.name} has no parameter {name!r}; it has: {known}")
    chosen.check(instance)
    refuse_unequal_rates(instance)
    settings = dict(chosen.parameters) | parameters
    replay = instance.random_arrivals if replay is None else replay
    task = Task(instance, chosen, settings, time_limit_s, seed, first, replay, watch, gap, executor)
    with stoppable(*SIGNALS[:1 + strict]) as stop:
        failures = list[Exception]()
        heard = _guarded(report, stop, failures)
        if not strict or not can_fork():
            return _noted(task.result(heard, tell), failures)
        with limited(task.left_s * SOLVE.tables) as tables:
            told = told_by(partial(task.limited_result, tables), task.left_s, heard, tell)
            tables.end()
            if isinstance(told, Outcome):
                told = task.left_result(told)
                told = _unproven(told) if tables.coarse else told
            return _noted(told, failures)


@dataclass(frozen=True)
class Task:
    """The arguments of a call of ``solve``, after they were checked. ``solve`` describes them.

    ``settings`` are all parameters of the method, ``start`` is the plan to begin with, and ``watch`` has run since the
    time limit began to count.
    """

    instance: Instance
    method: Method
    settings: Mapping[str, Any]
    time_limit_s: float
    seed: int
    start: Plan | None
    replay: bool
    watch: Stopwatch
    gap: float
    executor: Executor

    @property
    def left_s(self) -> float:
        """The seconds that are left for the search and the replays."""
        return max(self.time_limit_s - self.watch.elapsed_s, min(self.time_limit_s / 2, SOLVE.least_s))

    def limited_result(self, tables: Limited, report: Report, tell: Tell) -> Result:
        """The result under latency tables that may be coarse: if some were, nothing is proven, and they are refined in
        the time that is left.
        """
        end = Deadline(self.left_s)
        result = self.result(lambda news: report(replace(news, bound=None) if tables.coarse else news), tell)
        if not tables.coarse:
            return result
        tell("refining the latency table of its arrivals")
        return _unproven(result, "; it is complete now" if tables.refine(end) else "")

    def result(self, report: Report, tell: Tell) -> Result:
        """Search for a plan and verify it; replay it if that is asked for, and repair it if the method is ``auto``."""
        instance, chosen = self.instance, self.method
        check_size(instance)
        repairs = self.replay and chosen.name == "auto" and instance.random_arrivals
        begun = self._begun()
        left_s, tokens = self.left_s, any(one.tokens for one in instance.workloads)
        further = self.replay or tokens or states_memory(instance)
        end = Deadline(left_s)
        search = Search(left_s * (SOLVE.searched if further else 1), self.seed, self.settings, report, begun,
                        gap=self.gap)
        outcome = planned(chosen, instance, search)
        if search.stop.asked and outcome.termination in ("completed", "time_limit"):
            outcome = replace(outcome, termination="stopped")
        outcome, crowded = within_memory(instance, chosen, search, outcome, end)
        if outcome.solve_seconds is None:
            outcome = replace(outcome, solve_seconds=search.elapsed_s - outcome.build_seconds)
        flood = too_many(instance) if self.replay else ()
        if not self.replay or flood or outcome.plan is None:
            return self.answer(outcome, (*crowded, *flood))
        if tokens:
            verify(instance, outcome.plan)  # now, since it replays too, and keeps what it replayed
        outcome, reports, told = self._replayed(outcome, search, end, tell, repairs)
        return self.answer(outcome, (*crowded, *told), replay_of(instance, reports))

    def _begun(self) -> Plan | None:
        """The plan to begin with, at the rates of the instance and mended if it is not valid; None if there is none."""
        instance = self.instance
        plan, search = self.start, Search(self.left_s * SOLVE.beginning, self.seed)
        if plan is not None:
            plan = valid_for(instance, plan) or mended(instance, rerated(instance, plan), search)
        return plan or valid_for(instance, _beginning(instance, self.method, self.time_limit_s, self.seed))

    def _replayed(self, outcome: Outcome, search: Search, end: Deadline, tell: Tell, repairs: bool
                  ) -> tuple[Outcome, list[SimulationReport], tuple[str, ...]]:
        """Replay the plan of an outcome, and repair it if asked; return the outcome, the reports, and notes."""
        instance, stopped, told = self.instance, search.stop.asked, tuple[str, ...]()
        assert outcome.plan is not None
        reports = reports_of(instance, outcome.plan, self.seed, end, tell, self.executor)
        if repairs and unsure(reports, instance.policy.holds):
            before = outcome.plan, reports
            after = repaired(instance, self.method, search, end, tell, before)
            outcome, reports = replaced(instance, outcome, after[0]), after[1]
            told = tuple(notes(instance, before, after))
        if instance.random_arrivals and refuted(reports) and outcome.status in ("optimal", "feasible"):
            outcome = replace(outcome, status="refuted")
        if search.stop.asked and not stopped:
            told = (*told, "stopped while the plan was replayed")
        return outcome, reports, told

    def left_result(self, told: Outcome) -> Result:
        """The Result of a search that was left: that of the best plan that it told."""
        plan = valid_for(self.instance, told.plan or self.start)
        left = replace(told, status="unknown", plan=None) if plan is None else replaced(self.instance, told, plan)
        return self.answer(replace(left, termination=told.termination), (told.reason,))

    def answer(self, outcome: Outcome, told: Sequence[str], replay: Replay | None = None) -> Result:
        """The Result of an outcome, verified, with notes.

        Raises
        ------
        MethodError
            If the verifier rejects the plan, or the plan beats the bound.
        """
        instance, plan, bound = self.instance, outcome.plan, outcome.bound
        verdict = verify(instance, plan) if plan is not None else None
        objective, claims = objective_of(instance), f"method {self.method.name}"
        value = objective.value(plan) if plan is not None else None
        if verdict is not None and not verdict.ok and outcome.status != "unknown":
            raise MethodError(f"{claims} returned a plan that fails: {verdict.violations[0].message}")
        if verdict is not None and verdict.ok and value is not None and bound is not None \
                and objective.loss(value) < objective.loss(bound) - TOLERANCE * abs(bound):
            raise MethodError(f"{claims} claims a bound of {bound:.12g}, and its plan has {value:.12g}")
        return Result(
            instance=instance.name,
            digest=instance.digest,
            method=self.method.name,
            parameters={**self.settings, "time_limit_s": self.time_limit_s},
            seed=self.seed,
            status=outcome.status,
            termination=outcome.termination,
            reason=outcome.reason,
            plan=plan,
            report=verdict,
            objective=value,
            bound=bound,
            build_seconds=outcome.build_seconds,
            solve_seconds=outcome.solve_seconds or 0.0,
            versions=_versions(),
            notes=(*notes_of(instance), *told),
            replay=replay,
        )


def _guarded(report: Callable[[Incumbent], None] | None, stop: Stop, failures: list[Exception]
             ) -> Callable[[Incumbent], None]:
    """The callback ``report``. The first exception that it raises is added to ``failures`` and stops the search, which
    keeps its best plan.
    """
    def heard(news: Incumbent) -> None:
        if report is None or failures:
            return
        try:
            report(news)
        except KeyboardInterrupt:
            stop.ask()
        except Exception as error:
            failures.append(error)
            stop.ask()

    return heard


def _noted(result: Result, failures: Sequence[Exception]) -> Result:
    """A Result with a note on the exception of the callback, if there was one; without a plan it is raised."""
    for failure in failures:
        if result.plan is None:
            raise failure
        what = f"the report callback raised {type(failure).__name__}: {failure}; the search was ended there"
        result = replace(result, notes=(*result.notes, what))
    return result


def _chosen(method: str | Method | Callable[[Instance, Search], Outcome]) -> Method:
    """The Method with the given name; or the given Method; or a Method that calls the given function."""
    if isinstance(method, Method):
        return method
    if callable(method):
        name = getattr(method, "__name__", type(method).__name__)
        return Method(name=name, summary="a function", run=method, features=frozenset(FEATURES))
    return find_method(method)


def check_time_limit(time_limit_s: float) -> None:
    """Refuse a time limit out of range.

    Raises
    ------
    InputError
        If it is not above 0, or if it is longer than LONGEST_S.
    """
    if not 0 < time_limit_s <= LONGEST_S:
        raise InputError(f"time limit {time_limit_s!r}: must be above 0 and at most {LONGEST_S:g} seconds")


def _unproven(result: Result, further: str = "") -> Result:
    """A Result under coarse latency tables, of which nothing is proven."""
    return replace(result, status=UNPROVEN.get(result.status, result.status), bound=None,
                   termination="completed" if result.termination == "proved" else result.termination,
                   notes=(*result.notes, COARSE + further))


def _beginning(instance: Instance, chosen: Method, limit_s: float, seed: int) -> Plan | None:
    """The plan that a method wants to begin with; None if there is none."""
    if chosen.begins_with is None:
        return None
    first = find_method(chosen.begins_with(instance))
    return where_able(first)(instance, Search(limit_s * SOLVE.beginning, seed, dict(first.parameters))).plan


@cache
def _versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that an answer depends on."""
    packages = ("gpu-provision", "numba", "numpy", "scipy", "pulp", "ortools")
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name.removeprefix("gpu-")] = version(name)
    return found

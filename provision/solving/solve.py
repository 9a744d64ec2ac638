"""``provision.solve``: plans an instance with one method, and verifies the plan."""

import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import Any

from provision.instances.read import read
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.errors import InputError, MethodError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.plans.result import Replay, Result
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.executor import IN_PROCESS, Executor
from provision.models.problem.instance import Instance
from provision.models.problem.kept_columns import KeptColumns
from provision.models.problem.memory import states_memory
from provision.models.problem.method import FEATURES, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Stopped
from provision.solving.cut_off import TimeOver, cut_off
from provision.solving.large.size import check_size
from provision.solving.memory import within_memory
from provision.solving.methods import method as find_method
from provision.solving.notes import notes_of
from provision.solving.rehearsal import rehearse_once
from provision.solving.repair import Rehearsed, Repair, notes, replaced
from provision.solving.replayed import refuted, replay_of, reports_of, unsure
from provision.solving.staged import planned
from provision.verification.verify import verify

LONGEST_S = 1e7
FIRST, ALONE = 0.7, 0.9
"""The fraction of the time limit for the search; the rest is for replays and repairs (FIRST), or for replays alone
(ALONE).
"""
BEGINNING, BEGINNING_S = 0.2, 3.0
"""The largest part of the time, and the most seconds, for a plan to begin with."""
READING = 0.5
"""The largest fraction of the time limit that reading the instance may use before the search begins."""
ITERATIONS = 10
"""The iterations of ``lns`` in a rehearsal."""


def solve(
    instance: Instance | str | PathLike[str],
    method: str | Method | Callable[[Instance, Search], Outcome] = "auto",
    time_limit_s: float = 60.0,
    seed: int = 0,
    report: Callable[[Incumbent], None] | None = None,
    start: Plan | None = None,
    replay: bool | None = None,
    started: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
    strict: bool = False,
    gap: float = 0.0,
    kept: KeptColumns | None = None,
    executor: Executor = IN_PROCESS,
    **parameters: Any,
) -> Result:
    """Plan an instance with one method and verify the plan.

    Parameters
    ----------
    instance
        An Instance, the name of a shipped instance, or a path, as for ``provision.read``.
    method
        Name of a method (see ``provision.methods()``), a Method, or any function that takes an Instance and a
        ``Search`` and returns an ``Outcome``.
    time_limit_s
        Seconds after which a search returns its best plan.
    seed
        Seed of methods that draw random numbers.
    report
        Called with an Incumbent whenever a plan or bound improves. If it raises an exception, the search ends with its
        best plan, and the notes of the result name the exception.
    start
        A plan to begin with, possibly of a similar instance. It is used if it is valid for this instance.
    replay
        Whether to replay the plan under the instance's traffic; by default if the latency rule is for random arrivals.
        A part of the time limit is reserved for replays. Under such a rule ``auto`` also reserves time to repair
        workloads that are late by ``policy.holds``, and a plan that is late in the long run has the status ``refuted``.
        The bound is for the unchanged instance.
    started
        When the time limit began to count, by ``time.perf_counter()``; by default now. Time spent before the call and
        on reading the instance counts too, but half of the limit is always left for the search.
    tell
        Called after the search with texts that name the current activity, such as ``replaying 3 of 8``.
    strict
        Whether to interrupt the search, as Ctrl-C does, if it has not ended by itself soon after the time limit. The
        best plan is kept. This works only in the main thread, and uses the signal SIGALRM.
    gap
        The search may end when (objective - bound) / objective is no larger than this.
    kept
        Columns of an earlier solve, to begin with, which are replaced by new ones; see `provision.Planner`.
    executor
        Where tasks of the search run; see `provision.executor_of`.
    parameters
        Parameters of the method.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        For an unknown instance, method or parameter, a gap, time limit or seed out of range, or an instance that is
        far too large.
    UnsupportedError
        If the instance has a feature that the method does not support.
    MethodError
        If the verifier rejects a plan that the method claims to be feasible, or if the plan beats the method's bound.
    """
    watch = Stopwatch(started)
    if isinstance(instance, (str, PathLike)):
        instance = read(instance)
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
    check_size(instance)
    settings = dict(chosen.parameters) | parameters
    if chosen.compiled:
        rehearse_once(chosen.name, instance, partial(_moment, chosen, settings))
    listener = _Listener(report)
    replay = instance.random_arrivals if replay is None else replay
    repairs = replay and chosen.name == "auto" and instance.random_arrivals
    standing = start or (kept.plan_for(instance) if kept is not None else None)
    begun = _holding(instance, standing or _beginning(instance, chosen, time_limit_s, seed))
    left_s = time_limit_s - min(watch.elapsed_s, time_limit_s * READING)
    first_s = left_s * (FIRST if repairs or states_memory(instance) else ALONE if replay else 1)
    end = Deadline(left_s)
    search = Search(first_s, seed, settings, listener, begun, gap=gap, kept=kept, executor=executor)
    outcome = listener.attend(chosen, instance, search, first_s if strict else None)
    outcome, crowded = within_memory(instance, chosen, search, outcome, end)
    build_s, solve_s = outcome.build_seconds, outcome.solve_seconds
    if solve_s is None:
        solve_s = search.elapsed_s - build_s
    found: Replay | None = None
    repaired: tuple[str, ...] = ()
    if replay and outcome.plan is not None:
        spent_s = min(build_s + solve_s, first_s)  # without the time of compiling
        repair = Repair(instance, chosen, search, Deadline(left_s - spent_s), tell)
        reports: list[SimulationReport] = []
        try:
            with cut_off(repair.end.left_s if strict else None):
                before = after = Rehearsed(outcome.plan, reports_of(instance, outcome.plan, seed, repair.end, tell,
                                                                          executor))
                reports = before.reports
                if repairs and unsure(reports):
                    if unsure(reports, instance.policy.holds):
                        after = repair.repaired(before)
                        outcome, reports = replaced(instance, outcome, after.plan), after.reports
                    repaired = notes(repair, before, after)
        except KeyboardInterrupt as end_of_it:
            what = "the time was over" if isinstance(end_of_it, TimeOver) else "stopped"
            repaired = (f"{what} while the plan was replayed",)
        found = replay_of(instance, reports)
        if instance.random_arrivals and refuted(reports) and outcome.status in ("optimal", "feasible"):
            outcome = replace(outcome, status="refuted")
    verdict = verify(instance, outcome.plan) if outcome.plan is not None else None
    if verdict is not None and not verdict.ok and outcome.status != "unknown":
        raise MethodError(f"method {chosen.name} returned a plan that fails: {verdict.violations[0].message}")
    if kept is not None and verdict is not None and verdict.ok:
        kept.plan = outcome.plan
    value = objective_of(instance).value(outcome.plan) if outcome.plan is not None else None
    if verdict is not None and verdict.ok and _refuted(instance, value, outcome.bound):
        raise MethodError(f"method {chosen.name} claims a bound of {outcome.bound:.12g}, and its plan has {value:.12g}")
    return Result(
        instance=instance.name,
        digest=instance.digest,
        method=chosen.name,
        parameters=settings | {"time_limit_s": time_limit_s},
        seed=seed,
        status=outcome.status,
        termination=outcome.termination,
        reason=outcome.reason,
        plan=outcome.plan,
        report=verdict,
        objective=value,
        bound=outcome.bound,
        build_seconds=build_s,
        solve_seconds=solve_s,
        versions=_versions(),
        notes=(*notes_of(instance), *listener.notes, *crowded, *repaired),
        replay=found,
    )


class _Listener:
    """Passes incumbents on to a callback. An exception in the callback ends the search, but the best plan is kept."""

    def __init__(self, report: Callable[[Incumbent], None] | None) -> None:
        self.report = report
        self.failure: Exception | None = None
        self.plan: Plan | None = None
        self.bound: float | None = None

    def __call__(self, news: Incumbent) -> None:
        self.plan, self.bound = news.plan or self.plan, news.bound
        if self.report is None or self.failure is not None:
            return
        try:
            self.report(news)
        except Exception as error:
            self.failure = error
            raise Stopped from error

    def attend(self, method: Method, instance: Instance, search: Search, limit_s: float | None) -> Outcome:
        """Run a method. If the callback raised an exception and there is no outcome, raise that exception.

        A method that clearly exceeds the limit (None: no limit) is interrupted. If it then returns nothing, the outcome
        has the best plan that the method reported.
        """
        outcome = Outcome("unknown", "time_limit")
        try:
            with cut_off(limit_s) as cut:
                outcome = planned(method, instance, search)
        except TimeOver:
            if outcome.plan is None and (plan := _holding(instance, self.plan)) is not None:
                return replace(outcome, status="feasible", plan=plan, bound=self.bound)
        except Stopped:
            if self.failure is not None:
                raise self.failure from None
            raise
        cut_short = cut.made and outcome.termination == "stopped"
        return replace(outcome, termination="time_limit") if cut_short else outcome

    @property
    def notes(self) -> tuple[str, ...]:
        """A line on the exception of the callback, if there was one."""
        if self.failure is None:
            return ()
        what = f"{type(self.failure).__name__}: {self.failure}"
        return (f"the report callback raised {what}; the search was ended there",)


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


def _refuted(instance: Instance, value: float | None, bound: float | None) -> bool:
    """Whether a value is better than the bound on it by more than rounding errors, so that one of them must be wrong.
    """
    if value is None or bound is None:
        return False
    return objective_of(instance).loss(value) < objective_of(instance).loss(bound) - TOLERANCE * abs(bound)


def _moment(method: Method, settings: Mapping[str, Any], few: Instance, seconds: float) -> None:
    """Run a method on a few workloads, so that its kernels are compiled.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C was pressed. The method itself ends normally at Ctrl-C, so it is raised again.
    """
    if method.rehearse is not None:
        method.rehearse(few, seconds)
        return
    method.run(few, Search(seconds, parameters=dict(settings) | {"iterations": ITERATIONS})).unless_stopped()


def _beginning(instance: Instance, chosen: Method, limit_s: float, seed: int) -> Plan | None:
    """The plan that a method wants to begin with; None if there is none."""
    if chosen.begins_with is None:
        return None
    first = _chosen(chosen.begins_with(instance))
    if needs(instance) - first.features:
        return None
    return first.run(instance, Search(min(limit_s * BEGINNING, BEGINNING_S), seed, dict(first.parameters))).plan


def _holding(instance: Instance, plan: Plan | None) -> Plan | None:
    """A plan of another instance, labelled as a plan of this instance; None if it is not valid for this instance."""
    if plan is None or not verify(instance, plan).ok:
        return None
    return plan.model_copy(update={"instance": instance.name, "digest": instance.digest})


@cache
def _versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that an answer depends on."""
    packages = ("provision", "numba", "numpy", "scipy", "pulp", "ortools")
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

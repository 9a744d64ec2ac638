"""A search: its clock, seed and parameters, what it tells on the way, its best plan and bound, and how it ended.

Only this module reads the clock for what plans. Methods ask the Search; what they call gets a Deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal, TypeVar

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

LEAST, MOST = 1e-6, 1e6
"""Numeric parameters lie between these."""
REPLICA_S = 5e-5
"""About how long it takes to write down a replica of a plan, and as long to check it, in seconds."""

Number = TypeVar("Number", int, float)
Status = Literal["optimal", "feasible", "refuted", "infeasible", "unknown"]
Termination = Literal["proved", "completed", "time_limit", "stopped"]


@dataclass(frozen=True)
class Incumbent:
    """What a running search knows so far: the objective of its best plan, a proven bound, and the plan.

    Each is None where there is none yet. ``plan`` is None too where a method has not written its best plan down.
    """

    objective: float | None
    bound: float | None
    plan: Plan | None = None


class Stopped(KeyboardInterrupt):
    """What was told of an incumbent raised an exception, which is the cause: the search ends with its best plan."""


class Deadline:
    """A moment at which work must end.

    Parameters
    ----------
    seconds
        From now until then; ``at`` is the moment by ``time.perf_counter()``.
    """

    def __init__(self, seconds: float) -> None:
        self.at = perf_counter() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.at - perf_counter())

    @property
    def over(self) -> bool:
        """Whether the moment has come."""
        return perf_counter() >= self.at


class Stopwatch:
    """Counts the seconds since it was made.

    Parameters
    ----------
    started
        When to count from, by ``time.perf_counter()``; by default now.
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = perf_counter() if started is None else started

    @property
    def elapsed_s(self) -> float:
        """The seconds counted so far."""
        return perf_counter() - self._started

    def skip(self, seconds: float) -> None:
        """Do not count so many of the seconds."""
        self._started += seconds


@dataclass(frozen=True)
class Search:
    """How long and how to search.

    ``report`` is called with an Incumbent whenever something improves. ``start`` is a plan of the instance that holds,
    to begin with, or None; ``bound`` is a proven bound on its objective, or None. ``started`` is the moment from which
    the time limit and the elapsed seconds count.
    """

    time_limit_s: float = 60.0
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[Incumbent], None] = lambda incumbent: None
    start: Plan | None = None
    bound: float | None = None
    started: float = field(default_factory=perf_counter)

    @property
    def left_s(self) -> float:
        """Seconds until the time limit, at least 0."""
        return max(0.0, self.started + self.time_limit_s - perf_counter())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return perf_counter() - self.started

    def until(self, share: float = 1.0) -> Deadline:
        """The moment at which a share of the time left is over."""
        return Deadline(self.left_s * share)

    def anew(self, **changes: Any) -> Search:
        """A copy with some fields replaced, whose time begins to count now."""
        return replace(self, started=perf_counter(), **changes)

    def later(self, seconds: float) -> Search:
        """A copy whose time began so many seconds later: they do not count."""
        return replace(self, started=self.started + seconds)

    def apart(self, share: float, **parameters: str) -> Search:
        """A search of another instance in a part of the time left, with no plan or bound yet; nothing of it is told."""
        return self.anew(time_limit_s=self.left_s * share, parameters={**self.parameters, **parameters},
                         report=lambda incumbent: None, start=None, bound=None)

    def positive(self, name: str, kind: type[Number]) -> Number:
        """A parameter of the method as an int or a float (``kind``), above 0 and of sensible size.

        Raises
        ------
        InputError
            If it is none.
        """
        given = self.parameters[name]
        try:
            value = kind(given)
        except (TypeError, ValueError, OverflowError):
            value = kind(0)
        if not LEAST <= value <= MOST:
            least, what = (1, "whole number") if kind is int else (LEAST, "number")
            raise InputError(f"parameter {name}: {given!r} should be a {what} from {least:g} to {MOST:g}")
        return value


@dataclass(frozen=True)
class Outcome:
    """What a method found.

    ``termination`` says why it stopped: proved, completed (a heuristic's end), time_limit or stopped. ``bound`` is
    proven or None. ``reason`` names, for an infeasible or unknown outcome, what stands in the way and what would work.
    A plan beside ``unknown`` is one that by the method's own account breaks SLOs. ``build_seconds`` is how long it took
    to build the model, where there is one; ``solve_seconds`` the rest, which whoever ran the method counts where it is
    None.
    """

    status: Status
    termination: Termination
    plan: Plan | None = None
    bound: float | None = None
    reason: str = ""
    build_seconds: float = 0.0
    solve_seconds: float | None = None


class Progress:
    """The best plan and the best bound that a search knows on an instance; what improves is told.

    Parameters
    ----------
    instance
        The problem.
    search
        Whose ``report`` is called; its ``start`` and ``bound`` are the first.
    """

    def __init__(self, instance: Instance, search: Search) -> None:
        self.instance, self.search = instance, search
        self.plan = search.start
        self.bound = search.bound

    @property
    def value(self) -> float | None:
        """The objective of the best plan; None without one."""
        return objective_of(self.instance).value(self.plan) if self.plan is not None else None

    @property
    def writing_s(self) -> float:
        """About how long it takes to write down a plan as large as the best one, and as long to check it."""
        return 0.0 if self.plan is None else REPLICA_S * sum(len(gpu.slices) for gpu in self.plan.gpus)

    @property
    def proved(self) -> bool:
        """Whether no plan can be better than the best one."""
        return self.plan is not None and objective_of(self.instance).proved(self.value, self.bound)

    def offer(self, plan: Plan | None) -> bool:
        """Keep a plan that is better; returns whether it is."""
        better = plan is not None and objective_of(self.instance).better(
            objective_of(self.instance).value(plan), self.value
        )
        if better:
            self.plan = plan
            self.tell()
        return better

    def prove(self, bound: float | None) -> bool:
        """Keep a bound that is tighter; returns whether it is."""
        tighter = objective_of(self.instance).tighter(bound, self.bound)
        if tighter:
            self.bound = bound
            self.tell()
        return tighter

    def tell(self) -> None:
        """Report the best so far."""
        self.search.report(Incumbent(self.value, self.bound, self.plan))

    def outcome(self, termination: Termination, reason: str = "", build_seconds: float = 0.0) -> Outcome:
        """How the search ended; ``reason`` counts where there is no plan."""
        status: Status = "optimal" if self.proved else "feasible" if self.plan is not None else "unknown"
        spent = self.search.elapsed_s - build_seconds
        return Outcome(status, "proved" if self.proved else termination, self.plan, self.bound,
                       "" if self.plan is not None else reason, build_seconds, spent)

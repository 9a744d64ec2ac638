"""A search: its clock, seed and parameters, what it tells on the way, its best plan and bound, and how it ended."""

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
Status = Literal["optimal", "feasible", "infeasible", "unknown"]
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


@dataclass(frozen=True)
class Search:
    """How long and how to search.

    ``report`` is called with an Incumbent whenever something improves. ``start`` is a plan of the instance that holds,
    to begin with, or None; ``bound`` is a proven bound on its objective, or None.
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

    def apart(self, share: float, **parameters: str) -> Search:
        """A search of another instance in a part of the time left, with no plan or bound yet; nothing of it is told."""
        return replace(self, time_limit_s=self.left_s * share, parameters={**self.parameters, **parameters},
                       report=lambda incumbent: None, start=None, bound=None, started=perf_counter())

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
    A plan beside ``unknown`` is one that by the method's own account breaks SLOs.
    """

    status: Status
    termination: Termination
    plan: Plan | None = None
    bound: float | None = None
    reason: str = ""
    build_seconds: float = 0.0
    solve_seconds: float = 0.0


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
        spent = perf_counter() - self.search.started - build_seconds
        return Outcome(status, "proved" if self.proved else termination, self.plan, self.bound,
                       "" if self.plan is not None else reason, build_seconds, spent)

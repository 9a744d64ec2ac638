"""A search: its time limit, seed and parameters, the progress that it reports, its best plan and bound, and its
outcome. In planning, only this module reads the clock. Methods ask the Search for the time left, and give a Deadline to
the functions that they call. Signals ask a search to stop; they raise nothing, so that the best plan so far is not
lost.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from provision.models.base.clock import Deadline, Stop, now_s, present_stop, stopping
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask a search to stop: Ctrl-C, and what systems send first to end a process."""
LEAST, MOST = 1e-6, 1e6
"""The range of numeric parameters of methods."""
REPLICA_S, SHARING_S = 5e-5, 1e-4
"""The approximate time to build and verify one replica of a Plan, in seconds: alone on its slice, or beside others."""

Number = TypeVar("Number", int, float)
Status = Literal["optimal", "feasible", "refuted", "infeasible", "unknown"]
Termination = Literal["proved", "completed", "time_limit", "stopped", "died"]


@contextmanager
def stoppable(*signals: signal.Signals) -> Iterator[Stop]:
    """In the block, each of the ``signals`` asks for the Stop that is yielded; after it they do what they did before.

    Nothing changes where signals do not come (threads other than the main thread), where they are ignored (Ctrl-C in a
    process that a shell started in the background), and within a block that has a Stop, which is then asked for.
    """
    with stopping() as stop:
        deaf = threading.current_thread() is not threading.main_thread() or stop.whole is not None
        heard = [one for one in signals if not deaf and signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, lambda number, frame: stop.ask(number)) for one in heard}
        try:
            yield stop
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


@dataclass(frozen=True)
class Incumbent:
    """The state of a running search: the objective of its best plan, a proven bound, and the plan. Each is None as long
    as it is unknown. ``plan`` is also None if a method has not yet built the Plan of its best objective.
    """

    objective: float | None
    bound: float | None
    plan: Plan | None = None


@dataclass(frozen=True)
class Search:
    """The settings of a search: its time limit, its seed and the parameters of the method.

    ``report`` is called with an Incumbent whenever the plan or the bound improves. ``start`` is a valid plan of the
    instance from which the search may begin, or None. ``bound`` is a bound on the objective that is already proven, or
    None. ``started`` is the moment, by ``now_s()``, from which the time limit counts. The search may end at a
    relative ``gap``. No time is left once ``stop`` is asked for; searches made from this one share it.
    """

    time_limit_s: float = 60.0
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[Incumbent], None] = lambda incumbent: None
    start: Plan | None = None
    bound: float | None = None
    started: float = field(default_factory=now_s)
    gap: float = 0.0
    stop: Stop = field(default_factory=present_stop)

    @property
    def left_s(self) -> float:
        """The seconds until the time limit, at least 0."""
        return 0.0 if self.stop.asked else max(0.0, self.started + self.time_limit_s - now_s())

    @property
    def elapsed_s(self) -> float:
        """The seconds since the search began."""
        return now_s() - self.started

    def within(self, seconds: float = math.inf) -> Deadline:
        """The Deadline after some seconds, or at the time limit if that comes first."""
        return Deadline(min(seconds, self.left_s))

    def anew(self, **changes: Any) -> Search:
        """A copy with some fields replaced, whose time starts now."""
        return replace(self, started=now_s(), **changes)

    def apart(self, seconds: float = math.inf, **parameters: str) -> Search:
        """A search for another instance, limited to some seconds of the time left. It starts without plan and bound,
        and reports nothing.
        """
        return self.anew(time_limit_s=min(seconds, self.left_s), parameters={**self.parameters, **parameters},
                         report=lambda incumbent: None, start=None, bound=None)

    def positive(self, name: str, kind: type[Number]) -> Number:
        """A parameter of the method as an int or a float (``kind``), above 0 and at most MOST. Raises InputError if the
        parameter is not such a number.
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
    """The outcome of a method. ``termination`` tells why it stopped: proved, completed (a heuristic is done),
    time_limit, stopped, or died (its process ended without an answer). ``bound`` is a proven bound, or None. For an
    infeasible or unknown outcome, ``reason`` tells the obstacle and a remedy. With status ``unknown`` there may be a
    plan that, as the method itself states, breaks SLOs. ``build_seconds`` is the time to build the model, if there is a
    model, and ``solve_seconds`` the rest of the time; if it is None, the caller measures it.
    """

    status: Status
    termination: Termination
    plan: Plan | None = None
    bound: float | None = None
    reason: str = ""
    build_seconds: float = 0.0
    solve_seconds: float | None = None


class Progress:
    """The best plan and the best bound of a search; every improvement is reported.

    Parameters
    ----------
    instance
        The instance.
    search
        The search whose ``report`` is called; its ``start`` and ``bound`` are the first plan and bound.
    """

    def __init__(self, instance: Instance, search: Search) -> None:
        self.instance, self.search = instance, search
        self.plan = search.start
        self.bound = search.bound
        self._valued: tuple[Plan | None, float | None] = (None, None)

    @property
    def value(self) -> float | None:
        """The objective of the best plan; None without a plan."""
        if self.plan is not self._valued[0]:
            self._valued = self.plan, None if self.plan is None else objective_of(self.instance).value(self.plan)
        return self._valued[1]

    @property
    def writing_s(self) -> float:
        """The approximate time to build and verify a plan as large as the best plan, in seconds."""
        if self.plan is None:
            return 0.0
        numbers = [len(piece.replicas) for gpu in self.plan.gpus for piece in gpu.slices]
        return sum(REPLICA_S if number == 1 else SHARING_S * number for number in numbers)

    @property
    def proved(self) -> bool:
        """Whether the bound proves that no plan is better than the best plan."""
        return self.plan is not None and objective_of(self.instance).proved(self.value, self.bound)

    @property
    def enough(self) -> bool:
        """Whether the best plan is proven, or within the gap at which the search may end."""
        if self.plan is None or self.bound is None:
            return False
        assert self.value is not None
        return self.proved or abs(self.value - self.bound) <= self.search.gap * abs(self.value)

    def offer(self, plan: Plan | None) -> bool:
        """Keep a plan if it is better than the best plan so far; returns whether it was kept."""
        better = plan is not None and objective_of(self.instance).better(
            objective_of(self.instance).value(plan), self.value
        )
        if better:
            self.plan = plan
            self.tell()
        return better

    def prove(self, bound: float | None) -> bool:
        """Keep a bound if it is tighter than the tightest bound so far; returns whether it was kept."""
        tighter = objective_of(self.instance).tighter(bound, self.bound)
        if tighter:
            self.bound = bound
            self.tell()
        return tighter

    def tell(self) -> None:
        """Report the best plan and bound so far."""
        self.search.report(Incumbent(self.value, self.bound, self.plan))

    def outcome(self, termination: Termination, reason: str = "", build_seconds: float = 0.0) -> Outcome:
        """The Outcome of the search; ``reason`` is used if there is no plan."""
        status: Status = "optimal" if self.proved else "feasible" if self.plan is not None else "unknown"
        spent = self.search.elapsed_s - build_seconds
        return Outcome(status, "proved" if self.proved else termination, self.plan, self.bound,
                       "" if self.plan is not None else reason, build_seconds, spent)

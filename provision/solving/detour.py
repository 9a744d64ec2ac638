"""Plans an instance that the methods cannot plan directly, by planning similar instances.

These lack one rule of the instance, such as ``survive``. Their plans are kept if the verifier accepts them for the
instance itself.

Other instances are planned in rounds. The first round plans the first few of them for a short time each. Every later
round plans more of them, and again for longer those that were cut off. So what is known at some second does not depend
on the time limit.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from provision.heuristics.core import greedy
from provision.heuristics.gpulets import ideal
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.solving.schedule import DETOUR
from provision.verification.verify import verify

Run = Callable[[Instance, Search], Outcome]
QUICK = (greedy.METHODS[0], ideal.METHODS[0])
"""The methods for quick plans. The plans of the second one keep the SLOs under any latency rule."""


@dataclass
class Other:
    """An instance that is planned in place of another one, and what is known of it so far.

    Attributes
    ----------
    instance
        The other Instance.
    back
        Turns a plan of the other instance into a plan for the instance itself.
    plan
        The best plan of the other instance; None if none is known.
    bound
        A bound on the objective of the other instance; None if nothing is proven.
    impossible, reason
        Whether it is proven that the other instance has no plan, and the obstacle if it has none or none was found.
    cut_off
        Whether more time may give a better plan or bound. True before the first turn.
    """

    instance: Instance
    back: Callable[[Plan], Plan]
    plan: Plan | None = None
    bound: float | None = None
    impossible: bool = False
    reason: str = ""
    cut_off: bool = True


class Detour:
    """Plans similar instances in place of an instance, and keeps the best plan and bound that follow for the instance.

    Parameters
    ----------
    instance, search
        The problem and its Search.
    run
        Plans the other instances.
    parameters
        Parameters of the method that replace those of the search.
    """

    def __init__(self, instance: Instance, search: Search, run: Run, **parameters: str) -> None:
        self.search, self.run, self.parameters = search, run, parameters
        self.progress = Progress(instance, search)

    @property
    def over(self) -> bool:
        """Whether a plan is proven optimal, or the time is over."""
        return self.progress.proved or self.search.left_s <= 0

    def in_turns(self, others: Iterable[Other]) -> Iterator[Other]:
        """Plan other instances in rounds, until none is cut off or this Detour is over; yield each after its turn."""
        known, further = list[Other](), iter(others)
        number, seconds = DETOUR.first, DETOUR.turn_s
        while not self.over:
            known += islice(further, number - len(known))
            turn = [one for one in known if one.cut_off]
            if not turn:
                return
            for one in turn:
                if not self.over:
                    self.plan(one, seconds)
                    yield one
            number, seconds = number * DETOUR.more, seconds * DETOUR.longer

    def plan(self, other: Other, seconds: float = DETOUR.turn_s) -> None:
        """Plan another instance for some seconds, and keep its plan for this instance if it is valid."""
        begun = {} if other.plan is None else {"greedy": "no"}
        apart = self.search.apart(seconds, **self.parameters, **begun)
        found = self.run(other.instance, replace(apart, start=other.plan))
        other.cut_off, other.impossible = found.termination == "time_limit", found.status == "infeasible"
        other.reason = found.reason
        if objective_of(other.instance).tighter(found.bound, other.bound):
            other.bound = found.bound
        if found.plan is not None:
            other.plan = found.plan
            self.offer(other.back(found.plan))

    def quick(self, other: Instance, seconds: float = math.inf) -> Outcome:
        """The Outcome of a quick method on another instance, in at most some seconds.

        Its status is ``unknown`` if no quick method can plan the instance; its termination is ``time_limit`` if the
        method was cut short.
        """
        method = next((one for one in QUICK if needs(other) - {"random_turns"} <= one.features), None)
        if method is None:
            return Outcome("unknown", "completed")
        part = self.search.apart(seconds, **method.parameters)
        found = method.run(other, part)
        return found if part.left_s else replace(found, termination="time_limit")

    def begin(self, other: Other, seconds: float = DETOUR.turn_s) -> None:
        """Make a quick plan of another instance, and keep it for this instance if it is valid. Planning begins with it
        if it was not cut short.
        """
        quick = self.quick(other.instance, seconds)
        if quick.plan is not None:
            self.offer(other.back(quick.plan))
        other.plan = quick.plan if quick.termination in ("completed", "proved") else None

    def offer(self, plan: Plan) -> bool:
        """Keep a plan of the instance if it is valid and better than the best so far; returns whether it is valid."""
        valid = verify(self.progress.instance, plan).ok
        if valid:
            self.progress.offer(plan)
        return valid

    def outcome(self, reason: str) -> Outcome:
        """The Outcome so far; ``reason`` is given if there is no plan."""
        ended: Termination = "time_limit" if self.search.left_s <= 0 else "completed"
        return self.progress.outcome(ended, reason)

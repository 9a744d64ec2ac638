"""Plans an instance that the methods cannot plan directly, by planning similar instances.

These lack one rule of the instance, such as ``survive``. Their plans are kept if the verifier accepts them for the
instance itself.
"""

from collections.abc import Callable
from dataclasses import replace

from provision.heuristics.core import greedy
from provision.heuristics.gpulets import ideal
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.verification.verify import verify

Run = Callable[[Instance, Search], Outcome]
QUICK = (greedy.METHODS[0], ideal.METHODS[0])
"""The methods for quick plans. The plans of the second one keep the SLOs under any latency rule."""


class Detour:
    """Plans similar instances in place of an instance, and keeps the best plan and bound that follow for the instance.

    Parameters
    ----------
    instance, search
        The problem and its Search.
    run
        Plans the other instances.
    """

    def __init__(self, instance: Instance, search: Search, run: Run) -> None:
        self.search, self.run = search, run
        self.progress = Progress(instance, search)
        self.stopped = False

    @property
    def over(self) -> bool:
        """Whether a plan is proven optimal, the time is over, or the user stopped the search."""
        return self.progress.proved or self.search.left_s <= 0 or self.stopped

    def plan(self, other: Instance, share: float, back: Callable[[Plan], Plan] | None = None, start: Plan | None = None,
             **parameters: str) -> Outcome:
        """Plan another instance.

        Parameters
        ----------
        other
            The other Instance.
        share
            The fraction of the remaining time that planning it may take.
        back
            Turns a plan of the other instance into a plan of this instance, which is kept if it is valid. None if only
            the bound is wanted.
        start
            The quick plan of the other instance, to begin with.
        parameters
            Parameters of the method that replace those of the search.
        """
        begun = {} if start is None else {"greedy": "no"}
        apart = self.search.apart(self.search.left_s * share, **parameters, **begun)
        found = self.run(other, replace(apart, start=start))
        self.stopped |= found.termination == "stopped"
        if found.plan is not None and back is not None:
            self.offer(back(found.plan))
        return found

    def quick(self, other: Instance, share: float = 1.0) -> Outcome:
        """The Outcome of a quick method on another instance, in at most the fraction ``share`` of the remaining time.

        Its status is ``unknown`` if no quick method can plan the instance; its termination is ``time_limit`` if the
        method was cut short.
        """
        method = next((one for one in QUICK if needs(other) - {"random_turns"} <= one.features), None)
        if method is None:
            return Outcome("unknown", "completed")
        part = self.search.apart(self.search.left_s * share, **method.parameters)
        found = method.run(other, part)
        return found if part.left_s else replace(found, termination="time_limit")

    def offer(self, plan: Plan) -> bool:
        """Keep a plan of the instance if it is valid and better than the best so far; returns whether it is valid."""
        valid = verify(self.progress.instance, plan).ok
        if valid:
            self.progress.offer(plan)
        return valid

    def outcome(self, reason: str) -> Outcome:
        """The Outcome so far; ``reason`` is given if there is no plan."""
        ended: Termination = "stopped" if self.stopped else "time_limit" if self.search.left_s <= 0 else "completed"
        return self.progress.outcome(ended, reason)

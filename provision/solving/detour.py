"""Plans an instance that the methods cannot plan directly, by planning other instances in its place.

These lack one rule of the instance, such as ``survive``. Their plans are kept if the verifier accepts them for the
instance itself, and their bounds are combined: the one without the rule is never worse than the instance, and where
some instances together have all plans, the weakest of their bounds holds.

Other instances are planned in rounds. The first round plans the first few of them for a short time each. Every later
round plans more of them, and again for longer those that were cut off. So what is known at some second does not depend
on the time limit.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np

from provision.heuristics.core import greedy
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.models.problem.workload import Workload
from provision.solving.schedule import DETOURS
from provision.solving.steps import Step, valid_for, where_able

NOTHING = Outcome("unknown", "time_limit")
"""What is known of an instance before its first turn."""
SAFE = 1 + FORGIVEN
"""The factor on increased rates; it exceeds the sum of the verifier's tolerances."""


def unchanged(plan: Plan) -> Plan:
    """The plan itself."""
    return plan


@dataclass(eq=False)
class Other:
    """An instance that is planned in place of another one, and what is known of it so far.

    Attributes
    ----------
    make
        Makes the other Instance, when it is needed.
    back
        Turns a plan of the other instance into a plan for the instance itself.
    known
        The outcome of its last turn, with the best plan and bound of all turns.
    """

    make: Callable[[], Instance]
    back: Callable[[Plan], Plan] = unchanged
    known: Outcome = NOTHING

    @cached_property
    def instance(self) -> Instance:
        """The other instance."""
        return self.make()

    @property
    def impossible(self) -> bool:
        """Whether it is proven that the other instance has no plan."""
        return self.known.status == "infeasible"


class Detour:
    """Plans other instances in place of an instance, and keeps the best plan and bound that follow for the instance.

    Parameters
    ----------
    instance, search
        The problem and its Search.
    run
        Plans the other instances.
    finish
        Completes every plan for the instance, before it is verified.
    parameters
        Parameters of the method that replace those of the search.
    """

    def __init__(self, instance: Instance, search: Search, run: Step, finish: Callable[[Plan], Plan] = unchanged,
                 **parameters: str) -> None:
        self.search, self.run, self.finish = search, run, finish
        self.parameters, self.progress = parameters, Progress(instance, search)

    @property
    def over(self) -> bool:
        """Whether a plan is proven optimal, or the time is over."""
        return self.progress.proved or self.search.left_s <= 0

    def outcome(self, plain: Other, others: Iterable[Other], why: Callable[[], str], *,
                raised: Callable[[float], float] = lambda bound: bound, every: Sequence[Other] = (), none: str = ""
                ) -> Outcome:
        """Plan other instances in turns, and tell what follows for the instance.

        Parameters
        ----------
        plain
            An instance that has a plan if the instance itself has one.
        others
            All instances to plan, ``plain`` among them. They may depend on what is known of those before them.
        why
            Tells the obstacle if no plan is found, and none for ``plain`` either.
        raised
            Turns a bound of ``plain`` into a bound of the instance.
        every
            Instances of which one has the best plan of the instance; empty while such are not known. If it is proven
            that none of them has a plan, ``none`` is the reason.
        """
        progress = self.progress
        for _ in self._in_turns(others):
            if plain.impossible:
                return Outcome("infeasible", "proved", reason=plain.known.reason)
            progress.prove(None if plain.known.bound is None else raised(plain.known.bound))
            possible = [one.known.bound for one in every if not one.impossible]
            if every and not possible and progress.plan is None:
                return Outcome("infeasible", "proved", reason=none)
            bounds = [bound for bound in possible if bound is not None]
            if bounds and len(bounds) == len(possible):
                progress.prove(min(bounds, key=objective_of(progress.instance).loss))
        ended: Termination = "time_limit" if self.search.left_s <= 0 else "completed"
        return progress.outcome(ended, plain.known.reason or why())

    def _in_turns(self, others: Iterable[Other]) -> Iterator[Other]:
        """Plan other instances in rounds, until none is cut off or this Detour is over; yield each after its turn."""
        begun, further = list[Other](), iter(others)
        number, seconds = DETOURS.first, DETOURS.turn_s
        while not self.over:
            again = [one for one in begun if one.known.termination == "time_limit"]
            before = len(begun)
            for one in chain(again, islice(further, number - before)):
                if self.over:
                    return
                begun += [] if one in again else [one]
                self._plan(one, seconds)
                yield one
            if not again and len(begun) == before:
                return
            number, seconds = number * DETOURS.more, seconds * DETOURS.more

    def _plan(self, other: Other, seconds: float) -> None:
        """Plan another instance for some seconds, and keep its plan for this instance if it is valid."""
        before = other.known
        begun = {} if before.plan is None else {"greedy": "no"}
        apart = self.search.apart(seconds, **self.parameters, **begun)
        found = self.run(other.instance, replace(apart, start=before.plan))
        if found.termination == "completed" and not apart.left_s:
            found = replace(found, termination="time_limit")  # it ended, but perhaps for lack of time
        tighter = objective_of(other.instance).tighter(found.bound, before.bound)
        other.known = replace(found, plan=found.plan or before.plan, bound=found.bound if tighter else before.bound)
        if found.plan is not None:
            self.offer(other.back(found.plan))

    def quickly(self, others: Sequence[Other]) -> list[Other]:
        """Make quick plans of other instances in a few seconds, and for longer while none is valid; return the other
        instances, the best quick plan first. Planning begins with these plans.
        """
        end, losses = Deadline(DETOURS.quick_s), [math.inf] * len(others)
        for at, one in enumerate(others):
            if self.over or (end.over and self.progress.plan is not None):
                break
            plan = where_able(greedy.METHODS[0])(one.instance, self.search.apart()).plan
            if plan is not None:
                one.known, losses[at] = replace(one.known, plan=plan), self.offer(one.back(plan))
        return [others[at] for at in np.argsort(losses, kind="stable")]

    def offer(self, plan: Plan) -> float:
        """Keep a plan of the instance if it is valid and better than the best so far; returns what it loses by the
        objective, infinite if it is not valid.
        """
        objective, valid = objective_of(self.progress.instance), valid_for(self.progress.instance, self.finish(plan))
        self.progress.offer(valid)
        return math.inf if valid is None else objective.loss(objective.value(valid))


def with_spare_part(workload: Workload, parts: int, copies: int = 1) -> Workload:
    """The workload at its rate times parts / (parts - 1) / copies. No GPU may carry more than copies / parts of that,
    so that the others still carry its own rate when one GPU is lost. ``copies`` is how often every GPU of a plan will
    stand.
    """
    return workload.model_copy(update={
        "rate_rps": workload.rate_rps * parts / (parts - 1) / copies * SAFE,
        "max_share_per_gpu": min(workload.max_share_per_gpu, copies / parts)})


def routed(plan: Plan, parts: Mapping[str, float], copies: int = 1) -> Plan:
    """The plan with parts of the rates of its workloads, and with every GPU so many times."""
    scaled = plan.with_rates(parts)
    return scaled.model_copy(update={"gpus": tuple(gpu for gpu in scaled.gpus for _ in range(copies))})

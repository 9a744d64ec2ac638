"""Plans an instance that the methods cannot plan directly, by planning other instances in its place.

These lack one rule of the instance, such as ``survive``. Their plans are kept if the verifier accepts them for the
instance itself. One of them, the plain one, has a plan wherever the instance has one, so its bound holds too; and where
the others together have all plans, the weakest of their bounds holds.

The plain instance is planned first, for a short time. All others get quick plans, and then turns, the one with the best
quick plan first. Whatever was cut off is planned again and again, each time for longer. So what is known at some second
does not depend on the time limit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search
from provision.models.problem.workload import Workload
from provision.solving.schedule import DETOURS
from provision.solving.steps import GREEDY, Step, rerated, valid_for

NOTHING = Outcome("unknown", "time_limit")
"""What is known of an instance before its first turn."""
SAFE = 1 + FORGIVEN
"""The factor on increased rates; it exceeds the sum of the verifier's tolerances."""


@dataclass(eq=False)
class Other:
    """An instance that is planned in place of another one, and what is known of it so far.

    Attributes
    ----------
    instance
        The other Instance.
    back
        Turns a plan of it into a plan for the instance itself.
    known
        The outcome of its last turn, with the best plan and bound of all turns.
    """

    instance: Instance
    back: Callable[[Plan], Plan] = lambda plan: plan
    known: Outcome = NOTHING

    def plan(self, search: Search, run: Step, seconds: float) -> Plan | None:
        """Plan the other instance for some seconds, from its best plan; return the plan found now for the instance
        itself.
        """
        before = self.known
        apart = search.apart(seconds)
        found = run(self.instance, replace(apart, start=before.plan))
        if found.termination == "completed" and not apart.left_s:
            found = replace(found, termination="time_limit")  # it ended, but perhaps for lack of time
        tighter = objective_of(self.instance).tighter(found.bound, before.bound)
        self.known = replace(found, plan=found.plan or before.plan, bound=found.bound if tighter else before.bound)
        return None if found.plan is None else self.back(found.plan)


def by_others(
    progress: Progress, run: Step, plain: Other, choices: Sequence[Other], why: Callable[[], str], *,
    raised: Callable[[float], float] = lambda bound: bound, none: str = ""
) -> Outcome:
    """Plan other instances in turns, and tell what follows for the instance.

    Parameters
    ----------
    progress
        The Progress of the instance itself.
    run
        Plans the other instances.
    plain
        The other instance that has a plan if the instance itself has one.
    choices
        Further instances to plan.
    why
        Tells the obstacle if no plan is found.
    raised
        Turns a bound of ``plain`` into a bound of the instance.
    none
        Given if one of ``choices`` has the best plan of the instance: the reason if it is proven that none of them has
        a plan.
    """
    for _ in _turns(progress, run, plain, choices):
        if plain.known.status == "infeasible":
            return Outcome("infeasible", "proved", reason=plain.known.reason)
        progress.prove(None if plain.known.bound is None else raised(plain.known.bound))
        possible = [one.known.bound for one in choices if one.known.status != "infeasible"]
        if none and not possible and progress.plan is None:
            return Outcome("infeasible", "proved", reason=none)
        bounds = [bound for bound in possible if bound is not None]
        if none and bounds and len(bounds) == len(possible):
            progress.prove(min(bounds, key=objective_of(progress.instance).loss))
        if progress.enough:
            break
    return progress.outcome("completed" if progress.search.left_s > 0 else "time_limit", plain.known.reason or why())


def _turns(progress: Progress, run: Step, plain: Other, choices: Sequence[Other]) -> Iterator[None]:
    """Plan other instances until none is cut off or the time is over; yield after every turn."""
    search = progress.search

    def turns(others: Sequence[Other], seconds: float) -> Iterator[None]:
        for one in others:
            if search.left_s > 0:
                progress.offer(valid_for(progress.instance, one.plan(search, run, seconds)))
                yield

    seconds = DETOURS.turn_s
    yield from turns([plain], min(seconds, search.left_s / 2))  # also in little time the others get quick plans
    yield from turns(_best_first(progress, choices), seconds)
    while search.left_s > 0 and (again := [
            one for one in (plain, *choices) if one.known.termination == "time_limit"]):
        seconds *= DETOURS.longer
        yield from turns(again, seconds)


def _best_first(progress: Progress, choices: Sequence[Other]) -> list[Other]:
    """Make quick plans of other instances in a few seconds, and for longer while none is valid; return the other
    instances, the best quick plan first. Planning begins with these plans.
    """
    instance, search, end = progress.instance, progress.search, Deadline(DETOURS.quick_s)

    def loss(one: Other) -> float:
        if not search.left_s or (end.over and progress.plan is not None):
            return math.inf
        plan = GREEDY(one.instance, search.apart()).plan
        one.known = replace(one.known, plan=plan)
        valid = None if plan is None else valid_for(instance, one.back(plan))
        progress.offer(valid)
        return math.inf if valid is None else objective_of(instance).loss(objective_of(instance).value(valid))

    return sorted(choices, key=loss)


def with_spare_part(workload: Workload, parts: int, copies: int = 1) -> Workload:
    """The workload at its rate times parts / (parts - 1) / copies. No GPU may carry more than copies / parts of that,
    so that the others still carry its own rate when one GPU is lost. ``copies`` is how often every GPU of a plan will
    stand.
    """
    return workload.model_copy(update={
        "rate_rps": workload.rate_rps * parts / (parts - 1) / copies * SAFE,
        "max_share_per_gpu": min(workload.max_share_per_gpu, copies / parts)})


def routed(instance: Instance, plan: Plan, copies: int = 1) -> Plan:
    """The plan with every GPU so many times, and with rates scaled to those that are planned for the instance."""
    return rerated(instance, plan.model_copy(update={"gpus": tuple(gpu for gpu in plan.gpus for _ in range(copies))}))

"""Steps of ``auto`` made of other methods: one that may not be able to plan the instance, one for narrower instances
(with fewer GPU types, for example), and walks of ruin and recreate at the same time.
"""

import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from provision.models.base.clock import Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.plans.plan import Plan
from provision.models.problem.executor import shared
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving.methods import methods
from provision.solving.parts import parts_of

Step = Callable[[Instance, Search], Outcome]


def where_able(method: Method) -> Step:
    """A method as a step of ``auto``. If the method cannot plan the instance, its outcome is empty."""
    @wraps(method.run)
    def step(instance: Instance, search: Search) -> Outcome:
        try:
            method.check(instance)
            return method.run(instance, search)
        except UnsupportedError as error:
            return Outcome("unknown", "completed", reason=str(error))

    return step


def with_parts(method: Method) -> Step:
    """A step that runs a method on the instance and on narrower ones. It returns the best plan, and the instance's own
    bound.
    """
    def step(instance: Instance, search: Search) -> Outcome:
        progress, found = Progress(instance, search), where_able(method)(instance, search)
        if found.status in ("infeasible", "optimal"):
            return found
        progress.prove(found.bound)
        progress.offer(found.plan)
        if search.left_s < search.elapsed_s:  # too little time for narrower instances, which take about as long
            return progress.outcome(found.termination, found.reason)
        narrower = on_parts(method)(instance, search)
        progress.offer(narrower.plan)
        return progress.outcome(narrower.termination, found.reason)

    return step


def on_parts(method: Method, seconds: float = math.inf,
              weight: Callable[[Instance, Search], int] = lambda part, search: 1) -> Step:
    """A step that runs a method on narrower instances only, and returns the best plan. Their weights divide the
    ``seconds`` of all of them.
    """
    def step(instance: Instance, search: Search) -> Outcome:
        progress, parts, end = Progress(instance, search), list(parts_of(instance)), Deadline(seconds)
        if search.executor.workers > 1 and method.name in methods():
            return _at_once(method, progress, len(parts), seconds)
        weights = [weight(part, search) for part in parts]
        for at, part in enumerate(parts):
            found = where_able(method)(part, search.apart(end.left_s * weights[at] / sum(weights[at:])))
            if found.plan is not None:
                progress.offer(instance.adopted(found.plan))
        return progress.outcome("completed")

    return step


def _at_once(method: Method, progress: Progress, parts: int, seconds: float) -> Outcome:
    """Plan narrower instances at the same time, as tasks of an executor, in some ``seconds``; return the best plan."""
    instance, search = progress.instance, progress.search
    rounds = max(1, math.ceil(parts / search.executor.workers))
    given, limit_s = search.executor.share(instance), min(seconds / rounds, search.left_s)
    tasks = [(given, at, method.name, limit_s, search.seed, dict(search.parameters)) for at in range(parts)]
    for _, plan in search.executor.results(_part_planned, tasks):
        if plan is not None:
            progress.offer(instance.adopted(plan))
    return progress.outcome("completed")


def _part_planned(instance: Any, at: int, method: str, limit_s: float, seed: int, parameters: Mapping[str, Any]
                  ) -> Plan | None:
    """The plan of one narrower instance, as a task."""
    part = list(parts_of(shared(instance)))[at]
    return where_able(methods()[method])(part, Search(limit_s, seed, parameters)).plan

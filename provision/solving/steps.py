"""Steps of ``auto`` made of other methods: one that may not be able to plan the instance, and one that plans narrower
instances (with fewer GPU types, for example), too.
"""

from collections.abc import Callable, Iterator
from functools import wraps

from provision.models.base.errors import UnsupportedError
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Progress, Search

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
        progress.offer(parts_only(method)(instance, search).plan)
        return progress.outcome("completed", found.reason)

    return step


def parts_only(method: Method) -> Step:
    """A step that runs a method on narrower instances only, where it takes less time, and returns the best plan."""
    def step(instance: Instance, search: Search) -> Outcome:
        progress = Progress(instance, search)
        for part in _parts_of(instance):
            if progress.plan is not None and not search.left_s:
                break
            plan = where_able(method)(part, search.apart()).plan
            progress.offer(plan and instance.adopted(plan))
        return progress.outcome("completed")

    return step


def _parts_of(instance: Instance) -> Iterator[Instance]:
    """Yield narrower instances, those that are planned soonest first: with only one GPU type of a mixed fleet, if that
    type can run all workloads, without shared slices, and both. All plans of such an instance are valid for the
    instance itself.
    """
    if instance.policy.share_slices:
        unshared = instance.with_policy(share_slices=False)
        yield from _parts_of(unshared)
        yield unshared
    types = dict.fromkeys((entry.gpu, entry.partitioned) for entry in instance.fleet)
    for gpu, mig in types if len(types) > 1 else ():
        fleet = tuple(entry for entry in instance.fleet if (entry.gpu, entry.partitioned) == (gpu, mig))
        performance = tuple(data for data in instance.performance if data.gpu == gpu)
        known = {model for data in performance for model in data.models}
        if all(model in known for workload in instance.workloads for model in workload.models):
            yield instance.replace(fleet=fleet, performance=performance)

"""What steps of planning have in common: methods that may not be able to plan an instance, other instances that are
planned sooner, and plans of other instances, which may not be valid for it.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from provision.heuristics.core import greedy
from provision.models.base.errors import UnsupportedError
from provision.models.plans.plan import Plan, carried_rps
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search
from provision.verification.verify import verify

Step = Callable[[Instance, Search], Outcome]
"""Plans an instance."""


def where_able(method: Method) -> Step:
    """A method as a step. If the method cannot plan the instance, its outcome is empty."""
    @wraps(method.run)
    def step(instance: Instance, search: Search) -> Outcome:
        try:
            method.check(instance)
            return method.run(instance, search)
        except UnsupportedError as error:
            return Outcome("unknown", "completed", reason=str(error))

    return step


GREEDY = where_able(greedy.METHODS[0])
"""Makes quick plans."""


def valid_for(instance: Instance, plan: Plan | None) -> Plan | None:
    """A plan of another instance as a plan of this one; None if the verifier refuses it here, or if there is none."""
    return instance.adopted(plan) if plan is not None and verify(instance, plan).ok else None


def rerated(instance: Instance, plan: Plan) -> Plan:
    """A plan of other demand with the rates of an instance, without workloads that it lacks; it need not be valid."""
    known = plan.with_replicas(lambda one: one if one.workload in instance.workload else None)
    carried = carried_rps(known.gpus)
    scaled = known.with_rates({
        one.name: instance.planned_rps(one) / carried[one.name] for one in instance.workloads if carried[one.name]})
    return instance.plan_of(plan.method or "", scaled.gpus)


def of_others(others: Callable[[Instance], Iterable[Instance]]) -> Step:
    """A step that runs greedy only on other instances, which are planned sooner, and returns the best plan."""
    def step(instance: Instance, search: Search) -> Outcome:
        progress = Progress(instance, search)
        for other in others(instance):
            if progress.plan is not None and not search.left_s:
                break
            progress.offer(valid_for(instance, GREEDY(other, search.apart()).plan))
        return progress.outcome("completed")

    return step


def narrower(instance: Instance) -> Iterator[Instance]:
    """Yield narrower instances, those that are planned soonest first: with one GPU type of a mixed fleet that can run
    all workloads; without shared slices; and with one type and without shared slices. All plans of such an instance are
    valid for the instance itself.
    """
    if instance.policy.share_slices:
        unshared = instance.with_policy(share_slices=False)
        yield from narrower(unshared)
        yield unshared
    types = dict.fromkeys((entry.gpu, entry.partitioned) for entry in instance.fleet)
    for gpu, mig in types if len(types) > 1 else ():
        fleet = tuple(entry for entry in instance.fleet if (entry.gpu, entry.partitioned) == (gpu, mig))
        performance = tuple(data for data in instance.performance if data.gpu == gpu)
        known = {model for data in performance for model in data.models}
        if all(model in known for workload in instance.workloads for model in workload.models):
            yield instance.replace(fleet=fleet, performance=performance)


def one_gpu(instance: Instance) -> float:
    """What one GPU of the cheapest type adds to the objective, which every plan needs; 0 if no workload has requests,
    or if the objective is the most throughput.
    """
    served = any(one.rate_rps > 0 for one in instance.workloads) and instance.objective != THROUGHPUT
    return min(map(objective_of(instance).weight, instance.fleet)) if served else 0.0

"""Steps of ``auto`` made of other methods: one that may not be able to plan the instance, and one that plans other
instances, whose plans are valid for it, too: with fewer GPU types, for example, or with similar workloads made equal.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from provision.formulations.values.classes import classes_of
from provision.heuristics.core.greedy import without_sharing
from provision.models.base.errors import UnsupportedError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving.schedule import SIMILAR
from provision.verification.verify import verify

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


def of_others(method: Method, others: Callable[[Instance], Iterable[Instance]]) -> Step:
    """A step that runs a method only on other instances, which are planned sooner, and returns the best plan."""
    def step(instance: Instance, search: Search) -> Outcome:
        progress = Progress(instance, search)
        for other in others(instance):
            if progress.plan is not None and not search.left_s:
                break
            plan = where_able(method)(other, search.apart()).plan
            progress.offer(plan and _adopted(instance, other, plan))
        return progress.outcome("completed")

    return step


def _adopted(instance: Instance, other: Instance, plan: Plan) -> Plan | None:
    """The plan of another instance, in which workloads may have higher rates, for an instance; None if it is not valid.
    """
    part = {one.name: one.rate_rps / (higher.rate_rps or 1.0)
            for one, higher in zip(instance.workloads, other.workloads, strict=True)}
    found = instance.adopted(plan.with_rates(part))
    return found if verify(instance, found).ok else None


def similar(instance: Instance) -> Iterator[Instance]:
    """Yield the instance in which workloads of the same models and traffic, with SLOs and rates in the same few ranges,
    all have the shortest of their SLOs and the highest of their rates. Nothing is yielded if nearly as many workloads
    would be distinct as before.
    """
    served = [at for at, one in enumerate(instance.workloads) if one.rate_rps > 0]
    by_slo = classes_of(instance, served, SIMILAR.slos, each=True)
    classes = [few for one in by_slo for few in one.by_rate(SIMILAR.rates)]
    if len(classes) > SIMILAR.part * len({(one.models, one.slo_ms, one.rate_rps) for one in instance.workloads}):
        return
    workloads = list(instance.workloads)
    for alike in classes:
        several = [workloads[at] for at in alike.members.tolist()]
        equal = {"slo_ms": min(one.slo_ms for one in several), "rate_rps": max(one.rate_rps for one in several)}
        for at, one in zip(alike.members.tolist(), several, strict=True):
            workloads[at] = one.model_copy(update=equal)
    yield instance.replace(workloads=workloads)


def isolated(instance: Instance) -> Iterator[Instance]:
    """Yield the ``narrower`` instances in which no replicas share slices, and the one ``without_sharing``."""
    yield from (one for one in narrower(instance) if needs(one) <= ISOLATED | {"max_replicas", "max_throughput"})
    yield without_sharing(instance)


def narrower(instance: Instance) -> Iterator[Instance]:
    """Yield narrower instances, those that are planned soonest first: with only one GPU type of a mixed fleet, if that
    type can run all workloads, without shared slices, and both. All plans of such an instance are valid for the
    instance itself.
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

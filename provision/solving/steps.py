"""Steps of ``auto`` made of other methods: one that may not be able to plan the instance, and one that plans other
instances, whose plans are valid for it, too: with fewer GPU types, for example. ``Shape`` is what the order of the
steps depends on.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, wraps

from provision.formulations.pricing.rates import MOST_PRICED
from provision.heuristics.core import greedy
from provision.heuristics.core.greedy import without_sharing
from provision.heuristics.gpulets import ideal
from provision.models.base.errors import UnsupportedError
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Progress, Search
from provision.solving import values
from provision.solving.repair import mended
from provision.solving.schedule import SCHEDULE
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
            found = plan and instance.adopted(plan)
            progress.offer(found if found and verify(instance, found).ok else None)
        return progress.outcome("completed")

    return step


def isolated(instance: Instance) -> Iterator[Instance]:
    """Yield the ``narrower`` instances in which no replicas share slices, and the one ``without_sharing``."""
    yield from (one for one in narrower(instance) if needs(one) <= ISOLATED | {"max_replicas", "max_throughput"})
    yield without_sharing(instance)


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


def last_plan(instance: Instance, search: Search) -> Outcome:
    """The last plan, mended so that it serves the present demand."""
    plan = search.kept.plan_for(instance) if search.kept is not None else None
    found = None if plan is None else mended(instance, plan, search)
    return Outcome("unknown" if found is None else "feasible", "completed", found)


def least_of(instance: Instance) -> float | None:
    """The price of one GPU of the cheapest type, which every plan needs; None if no workload has requests, or if the
    objective is the most throughput.
    """
    served = any(instance.planned_rps(one) > 0 for one in instance.workloads) and instance.objective != THROUGHPUT
    return min(map(objective_of(instance).weight, instance.fleet)) if served else None


def onward(progress: Progress, least: float | None, seconds: float) -> Search:
    """The Search of a step: it begins with the best plan and bound so far, and reports only improvements. If the bound
    is only the price of one GPU (``least``), the step begins without a bound.
    """
    instance, bound = progress.instance, None if progress.bound == least else progress.bound

    def report(news: Incumbent) -> None:
        better = objective_of(instance).better(news.objective, progress.value)
        if news.plan is not None and better:
            progress.plan = news.plan
        if objective_of(instance).tighter(news.bound, progress.bound):
            progress.bound = news.bound
        value, plan = (news.objective, news.plan) if better else (progress.value, progress.plan)
        progress.search.report(Incumbent(value, progress.bound, plan))

    return progress.search.anew(time_limit_s=seconds, start=progress.plan, bound=bound, report=report)


class Shape:
    """What the order of the steps of ``auto`` depends on.

    Attributes
    ----------
    throughput
        Whether the objective is the most throughput.
    turns
        Whether replicas take turns as in gpu-lets, so that its published plan is valid.
    mixes
        Whether a linear program mixes isolated segments, which is quick; otherwise greedy fills slices.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance, asked = instance, needs(instance)
        self.slos = len({(one.models, one.slo_ms) for one in instance.workloads})
        self.throughput, self.mixes = instance.objective == THROUGHPUT, asked <= greedy.MIXED
        self.turns = "gpulets" in asked and asked - {"random_turns"} <= ideal.METHODS[0].features

    @cached_property
    def workloads(self) -> int:
        """The number of different workloads."""
        return len(set(self.instance.workloads))

    @property
    def many(self) -> bool:
        """Whether patterns cannot be priced for every workload by itself."""
        return self.workloads > MOST_PRICED

    @cached_property
    def classed(self) -> bool:
        """Whether many workloads share GPUs under interference, so that classes of them are bounded."""
        return self.many and values.applies(self.instance)

    @property
    def pooled(self) -> bool:
        """Whether there are too many workloads for the master program."""
        return self.classed and (self.slos > SCHEDULE.walked or self.workloads > SCHEDULE.vast)

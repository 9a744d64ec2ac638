"""Plans under two policies, by planning other instances: equal rates for all replicas, and survival of a lost GPU.

**Equal rates** (``even_replicas``), so that a load balancer needs no weights: First, a plan is made without this rule,
and its rates are made equal. If the result is not valid, a workload with n replicas is planned as n workloads with one
replica each and 1/n of the rate (fewer, with several replicas on different GPUs, if its share per GPU is limited).
Choices of the numbers n are tried, the cheapest first.

The bound is that of the instance without the rule. If all choices were tried and replicas do not share slices, the
bound is the least bound of all choices. Only numbers at which a further slice type becomes sufficient need to be tried:
numbers in between only need more slices.

**Survival** (``survive``) of the loss of any one GPU: plan a workload for k / (k - 1) of its rate, with no GPU carrying
more than 1 / k of the increased rate. Whichever GPU is lost, the others still carry the whole rate. Such instances are
planned for several choices of k. The cheapest plan is returned, with the stated rates routed to its replicas. With
``even_replicas``, each of k GPUs has one replica. All choices get quick plans first. Then the instance without
``survive`` is searched, for the bound, and all choices, the one with the best quick plan first.

The bound: a surviving plan without its most expensive GPU is a plan of the instance without ``survive``. Such a plan
with every GPU doubled survives too.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from provision.formulations.search.fleet import partitions_of
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Other, routed, unchanged, with_spare_part
from provision.solving.schedule import DETOURS
from provision.solving.steps import Step, one_gpu

Numbers = tuple[int, ...]
"""A choice: the number of equal replicas of every workload."""
Option = tuple[float, int]
"""An option: an estimated cost, and the number of replicas of a workload at that cost."""
ALONE = (ISOLATED | {"max_replicas", "tokens"}) - {"max_share_per_gpu"}
"""The features of instances for which trying all numbers is a proof."""
UNEVEN = "no even replicas of the workloads fit the fleet; raise its counts or leave even_replicas out"


def even_replicas(instance: Instance, search: Search, run: Step) -> Outcome:
    """Find the best plan with even replicas, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``even_replicas`` in its policy, and the Search.
    run
        Plans an instance without ``even_replicas``.
    """
    detour = Detour(instance, search, run, partial(dealt_evenly, instance), slack="no")
    plain, every = instance.with_policy(even_replicas=False), list[Other]()
    uneven = Other(lambda: plain)

    def others() -> Iterator[Other]:
        yield uneven
        options = _options(instance, uneven.known.plan)
        several = cheapest(options, DETOURS.numbers) if len(options) <= DETOURS.replicas else []
        choices = [Other(partial(split, plain, numbers), partial(merged, instance))
                   for numbers in several if sum(numbers) <= DETOURS.replicas]
        if len(choices) == math.prod(map(len, options)) and needs(plain) <= ALONE:
            every.extend(choices)
        for one in choices:
            yield from detour.quickly([one])

    return detour.outcome(uneven, others(), lambda: "no plan of even replicas was found; a longer time limit may help",
                          every=every, none=UNEVEN)


def dealt_evenly(instance: Instance, plan: Plan) -> Plan:
    """The plan with equal rates for all replicas of each workload."""
    count = Counter(replica.workload for _, _, _, replica in plan.replicas())
    each_rps = {name: instance.planned_rps(instance.workload[name]) / number for name, number in count.items()}
    return plan.with_replicas(lambda one: one.model_copy(update={"rate_rps": each_rps[one.workload]}))


def _options(instance: Instance, plan: Plan | None) -> list[list[Option]]:
    """For every workload, pairs of an estimated cost and a number of replicas to try. The numbers are those at which a
    further slice type is enough, the number of a plan, which need not be even, and one more.
    """
    segments = best_segments(instance)
    most = partitions_of(instance, segments).slots.max(axis=0)
    price = [objective_of(instance).weight(instance.fleet[slice_type.entry]) / slots if slots else math.inf
             for slice_type, slots in zip(segments.slice_types, most.tolist(), strict=True)]
    count = Counter(replica.workload for _, _, _, replica in plan.replicas()) if plan is not None else Counter[str]()
    found = []
    for one, row in zip(instance.workloads, segments.throughput_rps.tolist(), strict=True):
        fewest, planned_rps = _fewest(one), instance.planned_rps(one)
        needed = [max(math.ceil(planned_rps / rps * (1 - TOLERANCE)), fewest) if rps > 0 else math.inf for rps in row]
        near = {count[one.name], count[one.name] + 1} if count[one.name] else set()
        numbers = ({int(number) for number in needed if number < math.inf} or {fewest}) | near
        found.append([
            (number * min((cost for cost, least in zip(price, needed, strict=True) if least <= number), default=0.0),
             number) for number in sorted(numbers) if fewest <= number <= (one.max_replicas or number)])
    return found


def _fewest(workload: Workload) -> int:
    """The fewest equal replicas that a workload may have; one must not exceed its share per GPU."""
    share = workload.max_share_per_gpu if workload.rate_rps else 1.0
    return max(1, workload.min_replicas, math.ceil((1 - TOLERANCE) / share))


def cheapest(options: Sequence[Sequence[Option]], most: int) -> list[Numbers]:
    """The cheapest choices of one option per workload, at most so many, the cheapest first; none if a workload has no
    option.
    """
    best: list[tuple[float, Numbers]] = [(0.0, ())]
    for several in options:
        pairs = heapq.nsmallest(most, product(best, several), key=lambda pair: pair[0][0] + pair[1][0])
        best = [(cost + more, (*numbers, number)) for (cost, numbers), (more, number) in pairs]
    return [numbers for _, numbers in best]


def split(plain: Instance, numbers: Numbers) -> Instance:
    """The instance with n workloads of one replica each in place of every workload of n replicas.

    If a GPU may carry only k of the n equal parts of a workload, they become k workloads, each with its replicas on
    different GPUs. The new workloads are named after the index of the workload: ``2.0`` is the first part of the third
    workload.
    """
    parts = tuple(
        one.model_copy(update={
            "name": f"{at}.{part}", "rate_rps": one.rate_rps * replicas / number,
            "min_replicas": replicas if replicas > 1 else min(one.min_replicas, 1), "max_replicas": replicas,
            "max_share_per_gpu": 1 / replicas,
        })
        for at, (one, number) in enumerate(zip(plain.workloads, numbers, strict=True))
        for part, replicas in enumerate(_dealt(number, _together(one, number)))
    )
    return plain.replace(workloads=parts, workflows=())


def _together(workload: Workload, number: int) -> int:
    """How many of a number of equal replicas of a workload may be on one GPU, at least 1."""
    return max(1, math.floor(workload.max_share_per_gpu * number * (1 + TOLERANCE))) if workload.rate_rps else number


def _dealt(number: int, several: int) -> list[int]:
    """A number divided into several whole parts that are as equal as possible; none is 0."""
    few, more = divmod(number, several)
    return [few + 1] * more + [few] * (several - more if few else 0)


def merged(instance: Instance, plan: Plan) -> Plan:
    """A plan of a split instance for the workloads of the instance itself."""
    def renamed(one: Replica) -> Replica:
        return one.model_copy(update={"workload": instance.workloads[int(one.workload.partition(".")[0])].name})

    return plan.with_replicas(renamed)


def surviving(instance: Instance, search: Search, run: Step) -> Outcome:
    """Find the best surviving plan, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``survive`` in its policy, and the Search.
    run
        Plans an instance without ``survive``.
    """
    finish = partial(dealt_evenly, instance) if instance.policy.even_replicas else unchanged
    detour = Detour(instance, search, run, finish, slack="no")
    choices = [Other(partial(_spread, instance, parts), partial(_without_one_part, parts=parts))
               for parts in _choices(instance)]
    doubled = partial(routed, parts=dict.fromkeys(instance.workload, 0.5), copies=2)
    plain = Other(lambda: _without(instance, [_unlimited(one) for one in instance.workloads]), doubled)
    limited = Other(lambda: _without(instance, instance.workloads), doubled)
    return detour.outcome(
        plain, [plain, *detour.quickly(choices), limited],
        lambda: next((one.known.reason for one in reversed(choices) if one.known.reason), ""),
        raised=lambda bound: bound + one_gpu(instance))


def _unlimited(workload: Workload) -> Workload:
    """A workload without what a surviving plan may break without one of its GPUs: a limit on the share per GPU, and a
    lower limit on replicas above 1.
    """
    return workload.model_copy(update={"max_share_per_gpu": 1.0, "min_replicas": min(workload.min_replicas, 1)})


def _without(instance: Instance, workloads: Sequence[Workload]) -> Instance:
    """The instance with other workloads, without survival and without even rates."""
    return instance.with_policy(survive=None, even_replicas=False).replace(workloads=workloads)


def _choices(instance: Instance) -> Iterator[dict[str, int]]:
    """Yield choices of the number of GPUs over which each workload is spread: about as many as carry it, plus 1, 2, ...
    """
    segments = best_segments(instance)
    most_rps = (segments.throughput_rps @ partitions_of(instance, segments).slots.T).max(axis=1, initial=0.0)
    for more in range(1, 1 + DETOURS.spreads):
        yield {
            one.name: max(2, min(math.ceil(instance.planned_rps(one) / rps) + more if rps > 0 else 1 + more,
                                 one.max_replicas or DETOURS.most_gpus, DETOURS.most_gpus))
            for one, rps in zip(instance.workloads, most_rps.tolist(), strict=True)
        }


def _spread(instance: Instance, parts: Mapping[str, int]) -> Instance:
    """The instance with increased rates, each in so many parts; with ``even_replicas``, every part is one replica."""
    workloads = [with_spare_part(one, parts[one.name]) if one.rate_rps else one for one in instance.workloads]
    if instance.policy.even_replicas:
        workloads = [one.model_copy(update=dict.fromkeys(("min_replicas", "max_replicas"), parts[one.name]))
                     if one.rate_rps else one for one in workloads]
    return _without(instance, workloads)


def _without_one_part(plan: Plan, parts: Mapping[str, int]) -> Plan:
    """A plan of the spread instance with the stated rates, which are those of all parts but one."""
    return routed(plan, {name: (number - 1) / number for name, number in parts.items()})

"""Plans under two policies, by planning other instances: equal rates for all replicas, and survival of a lost GPU.

**Equal rates** (``even_replicas``), so that a load balancer needs no weights: First, a plan is made without this rule,
and its rates are made equal. If the result is not valid, a workload with n replicas is planned as n workloads with one
replica each and 1/n of the rate; if its share per GPU is limited, as one workload with n replicas on n GPUs. Choices of
the numbers n are tried, the cheapest first.

The bound is that of the instance without the rule. If all choices were tried and replicas do not share slices, the
bound is the least bound of all choices. Only numbers at which a further slice type becomes sufficient need to be tried:
numbers in between only need more slices.

**Survival** (``survive``) of the loss of any one GPU: plan a workload for k / (k - 1) of its rate, with no GPU carrying
more than 1 / k of the increased rate. Whichever GPU is lost, the others still carry the whole rate. Such instances are
planned for several choices of k. The cheapest plan is returned, with the stated rates routed to its replicas. With
``even_replicas``, each of k GPUs has one replica.

The bound: a surviving plan without its most expensive GPU is a plan of the instance without ``survive``.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from provision.formulations.search.segments import best_segments, partitions_of
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Other, by_others, routed, with_spare_part
from provision.solving.schedule import DETOURS
from provision.solving.steps import GREEDY, Step, one_gpu

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
    plain = instance.with_policy(even_replicas=False)
    options = _options(instance, GREEDY(plain, search.apart()).plan)
    choices = [Other(split(plain, numbers), lambda plan: dealt_evenly(instance, whole(plan)))
               for numbers in (cheapest(options, DETOURS.numbers) if len(options) <= DETOURS.replicas else ())
               if sum(numbers) <= DETOURS.replicas]
    every = 0 < len(choices) == math.prod(map(len, options)) and needs(plain) <= ALONE
    return by_others(_progress(instance, search), run, Other(plain, partial(dealt_evenly, instance)), choices,
                     lambda: "no plan of even replicas was found; a longer time limit may help",
                     none=UNEVEN if every else "")


def _progress(instance: Instance, search: Search) -> Progress:
    """The Progress of an instance whose other instances are planned without slack."""
    return Progress(instance, replace(search, parameters={**search.parameters, "slack": "no"}))


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
    """The instance with n workloads of one replica each in place of every workload of n replicas; a workload whose
    share per GPU is limited stays one, with n replicas on n GPUs. ``0.w`` is the first part of workload ``w``.
    """
    parts = []
    for one, number in zip(plain.workloads, numbers, strict=True):
        replicas = number if one.rate_rps and one.max_share_per_gpu < 1 else 1
        parts += [one.model_copy(update={
            "name": f"{part}.{one.name}", "rate_rps": one.rate_rps * replicas / number,
            "min_replicas": replicas if replicas > 1 else min(one.min_replicas, 1), "max_replicas": replicas,
            "max_share_per_gpu": 1 / replicas}) for part in range(number // replicas)]
    return plain.replace(workloads=parts, workflows=())


def whole(plan: Plan) -> Plan:
    """A plan of a split instance for the workloads of the instance itself."""
    return plan.with_replicas(lambda one: one.model_copy(update={"workload": one.workload.partition(".")[2]}))


def surviving(instance: Instance, search: Search, run: Step) -> Outcome:
    """Find the best surviving plan, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``survive`` in its policy, and the Search.
    run
        Plans an instance without ``survive``.
    """
    def back(plan: Plan) -> Plan:
        return dealt_evenly(instance, plan) if instance.policy.even_replicas else routed(instance, plan)

    # A surviving plan may break limits on shares and on the fewest replicas without one of its GPUs.
    plain = _without(instance, [one.model_copy(update={
        "max_share_per_gpu": 1.0, "min_replicas": min(one.min_replicas, 1)}) for one in instance.workloads])
    choices = [Other(one, back) for one in _spreads(instance)]
    return by_others(
        _progress(instance, search), run, Other(plain), choices,
        lambda: next((one.known.reason for one in reversed(choices) if one.known.reason), ""),
        raised=lambda bound: bound + one_gpu(instance))


def _without(instance: Instance, workloads: Sequence[Workload]) -> Instance:
    """The instance with other workloads, without survival and without even rates."""
    return instance.with_policy(survive=None, even_replicas=False).replace(workloads=workloads)


def _spreads(instance: Instance) -> Iterator[Instance]:
    """Yield instances with increased rates, of which no GPU carries more than one part. A workload has 1, 2, ... parts
    more than GPUs that carry its rate; with ``even_replicas``, every part is one replica.
    """
    segments = best_segments(instance)
    most_rps = (segments.throughput_rps @ partitions_of(instance, segments).slots.T).max(axis=1, initial=0.0)
    for more in range(1, 1 + DETOURS.spreads):
        workloads = list(instance.workloads)
        for at, (one, rps) in enumerate(zip(instance.workloads, most_rps.tolist(), strict=True)):
            parts = math.ceil(instance.planned_rps(one) / (rps or math.inf)) + more
            parts = max(2, min(parts, one.max_replicas or parts))
            limits = {"min_replicas": parts, "max_replicas": parts} if instance.policy.even_replicas else {}
            if one.rate_rps:
                workloads[at] = with_spare_part(one, parts).model_copy(update=limits)
        yield _without(instance, workloads)

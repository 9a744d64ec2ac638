"""Plans whose replicas carry equal rates, so that a load balancer needs no weights.

First, a plan is made without this rule, and its rates are made equal. If the result is not valid, a workload with n
replicas is planned as n workloads with one replica each and 1/n of the rate (fewer, with several replicas on different
GPUs, if its share per GPU is limited). Choices of the numbers n are tried, the
cheapest first.

The bound is that of the instance without the rule. If all choices were tried and replicas do not share slices, the
bound is the least bound of all choices. Only numbers at which a further slice type becomes sufficient need to be tried:
numbers in between only need more slices.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, takewhile

from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Other, Run

MOST_CHOICES, MOST_PARTS = 60, 2000
"""The most choices of numbers that are tried, and the most parts of workloads in the instance of a choice."""

Numbers = tuple[int, ...]
"""A choice: the number of equal replicas of every workload."""
Option = tuple[float, int]
"""An option: an estimated cost, and the number of replicas of a workload at that cost."""
ALONE = (ISOLATED | {"max_replicas", "tokens"}) - {"max_share_per_gpu"}
"""The features of instances for which trying all numbers is a proof."""
UNEVEN = "no even replicas of the workloads fit the fleet; raise its counts or leave even_replicas out"


def even_replicas(instance: Instance, search: Search, run: Run) -> Outcome:
    """Find the best plan with even replicas, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``even_replicas`` in its policy, and the Search.
    run
        Plans an instance without ``even_replicas``.
    """
    detour = Detour(instance, search, run, slack="no")
    uneven = Other(instance.with_policy(even_replicas=False), partial(dealt_evenly, instance))
    detour.plan(uneven)
    choices = _Choices(instance, detour, uneven)
    for _ in chain([uneven], detour.in_turns(chain([uneven], choices.others()))):
        bound = choices.bound
        if uneven.impossible or bound == math.inf:
            return Outcome("infeasible", "proved", reason=uneven.reason if uneven.impossible else UNEVEN)
        detour.progress.prove(uneven.bound)
        detour.progress.prove(bound)
    return detour.outcome(uneven.reason or "no plan of even replicas was found; a longer time limit may help")


class _Choices:
    """The choices of numbers, and what is known of the instances that they give.

    Parameters
    ----------
    instance, detour, uneven
        The problem, the Detour that plans it, and the same without even replicas, whose plan tells which numbers to
        try.
    """

    def __init__(self, instance: Instance, detour: Detour, uneven: Other) -> None:
        self.instance, self.detour, self.plain = instance, detour, uneven.instance
        options = _options(instance, uneven.plan)
        several = islice(_cheapest_first(options), MOST_CHOICES)
        self.numbers = list(takewhile(lambda numbers: sum(numbers) <= MOST_PARTS, several))
        self.every = 0 < len(self.numbers) == math.prod(map(len, options)) and needs(self.plain) <= ALONE
        self.begun = list[Other]()

    def others(self) -> Iterator[Other]:
        """Yield the instance of every choice with a quick plan, the cheapest choice first."""
        for numbers in self.numbers:
            self.begun.append(one := Other(split(self.plain, numbers), self._back))
            self.detour.begin(one)
            yield one

    def _back(self, plan: Plan) -> Plan:
        """A plan of a choice as a plan of the instance."""
        return dealt_evenly(self.instance, merged(self.instance, plan))

    @property
    def bound(self) -> float | None:
        """The least bound of all choices, infinite if none of them has a plan; None if there may be further choices."""
        if not self.every or len(self.begun) < len(self.numbers):
            return None
        return min(math.inf if one.impossible else one.bound or 0.0 for one in self.begun)


def dealt_evenly(instance: Instance, plan: Plan) -> Plan:
    """The plan with equal rates for all replicas of each workload, as a plan of the instance."""
    count = Counter(replica.workload for _, _, _, replica in plan.replicas())
    each_rps = {name: instance.planned_rps(instance.workload[name]) / number for name, number in count.items()}
    return changed(instance, plan, lambda one: one.model_copy(update={"rate_rps": each_rps[one.workload]}))


def changed(instance: Instance, plan: Plan, change: Callable[[Replica], Replica]) -> Plan:
    """The plan with ``change`` applied to every replica, as a plan of the instance."""
    return plan.with_replicas(change).model_copy(update={"digest": instance.digest})


def _options(instance: Instance, plan: Plan | None) -> list[list[Option]]:
    """Numbers of replicas to try for every workload, the cheapest first.

    Parameters
    ----------
    instance
        The problem.
    plan
        A plan, not necessarily even, whose numbers of replicas are tried too.
    """
    count = Counter(replica.workload for _, _, _, replica in plan.replicas()) if plan is not None else Counter[str]()
    return [
        sorted(_allowed(one, {*by_number, *_near(count[one.name])}, by_number))
        for one, by_number in zip(instance.workloads, _costs(instance), strict=True)
    ]


def _near(number: int) -> set[int]:
    """The numbers of replicas to try close to that of a plan: the same, and one more."""
    return {number, number + 1} if number else set()


def _costs(instance: Instance) -> list[dict[int, float]]:
    """For every workload, numbers of replicas and the cost of that many slices. A slice costs its part of a GPU.

    The numbers are those at which a further slice type becomes able to carry one of the replicas.
    """
    segments = best_segments(instance)
    most = partitions_of(instance, segments).slots.max(axis=0)
    price = [
        objective_of(instance).weight(instance.fleet[slice_type.entry]) / slots if slots else math.inf
        for slice_type, slots in zip(segments.slice_types, most.tolist(), strict=True)
    ]
    found: list[dict[int, float]] = []
    for one, row in zip(instance.workloads, segments.throughput_rps.tolist(), strict=True):
        needed = [math.ceil(instance.planned_rps(one) / rps * (1 - TOLERANCE)) if rps > 0 else math.inf for rps in row]
        numbers = {max(_fewest(one), int(number)) for number in needed if number < math.inf} or {_fewest(one)}
        found.append({
            number: number * min((cost for cost, least in zip(price, needed, strict=True) if least <= number),
                                 default=0.0)
            for number in numbers
        })
    return found


def _allowed(workload: Workload, numbers: set[int], costs: Mapping[int, float]) -> Iterator[Option]:
    """Yield the options (cost, number) of a workload that its limits allow.

    A number without a known cost gets the cost per replica of the next lower number.
    """
    for number in numbers:
        if _fewest(workload) <= number <= (workload.max_replicas or number):
            known = max((other for other in costs if other <= number), default=min(costs))
            yield costs[known] * number / known, number


def _fewest(workload: Workload) -> int:
    """The fewest equal replicas that a workload may have; one must not exceed its share per GPU."""
    share = workload.max_share_per_gpu if workload.rate_rps else 1.0
    return max(1, workload.min_replicas, math.ceil((1 - TOLERANCE) / share))


def _cheapest_first(options: Sequence[Sequence[Option]]) -> Iterator[Numbers]:
    """Yield all choices of one option per workload in the order of their total cost; none if a workload has no option.

    Parameters
    ----------
    options
        For every workload its options (cost, number), the cheapest first.
    """
    if not all(options):
        return
    first = (0,) * len(options)
    heap, seen = [(sum(one[0][0] for one in options), first)], {first}
    while heap:
        cost, chosen = heapq.heappop(heap)
        yield tuple(one[at][1] for one, at in zip(options, chosen, strict=True))
        for place, at in enumerate(chosen):
            if at + 1 < len(options[place]):
                following = (*chosen[:place], at + 1, *chosen[place + 1 :])
                if following not in seen:
                    seen.add(following)
                    more = options[place][at + 1][0] - options[place][at][0]
                    heapq.heappush(heap, (cost + more, following))


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
    """A plan of a split instance as a plan of the instance itself."""
    def renamed(one: Replica) -> Replica:
        return one.model_copy(update={"workload": instance.workloads[int(one.workload.partition(".")[0])].name})

    return changed(instance, plan, renamed)

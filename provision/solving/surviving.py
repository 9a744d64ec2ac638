"""Plans that survive the loss of any one GPU, from plans that spread more than the rates.

A plan with k / (k - 1) of a workload's rate, of which no GPU carries more than 1 / k, still carries the whole rate when
it loses any GPU. So such instances are planned, for some choices of k, and the cheapest plan counts; its replicas are
routed the stated rates. With ``even_replicas`` each of k GPUs has one replica, so that all carry 1 / k. Bound: without
its dearest GPU such a plan is one that need not survive. To begin with, a plan that need not survive is made twice.
"""

import math
from collections.abc import Iterator
from functools import partial

from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Run
from provision.solving.even import changed, dealt_evenly

BOUND_SHARE, PLAN_SHARE = 0.3, 0.5
"""Parts of the time left that the bound, and each choice, may take."""
MORE, MOST_PARTS = 3, 12
"""Choices that are tried, and the most GPUs that a workload is spread over."""
SAFE = 1 + FORGIVEN
"""More than the verifier's tolerances add up to."""


def surviving(instance: Instance, search: Search, run: Run) -> Outcome:
    """The best surviving plan that is found, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``survive`` in its policy, and the Search.
    run
        Plans an instance without it.
    """
    detour, reason = Detour(instance, search, run), ""
    found = detour.plan(_unconcerned(instance), BOUND_SHARE, partial(_doubled, instance))
    if found.status == "infeasible":
        return found
    if found.bound is not None:
        lost = (
            min(map(objective_of(instance).weight, instance.fleet))
            if any(one.rate_rps for one in instance.workloads)
            else 0.0
        )
        detour.progress.prove(found.bound + lost)
    if detour.progress.plan is None and not detour.over:
        detour.plan(_without(instance, instance.workloads), BOUND_SHARE, partial(_doubled, instance))
    for parts in _choices(instance):
        if detour.over:
            break
        reason = detour.plan(_spread(instance, parts), PLAN_SHARE, partial(_routed, instance, parts)).reason or reason
    return detour.outcome(reason)


def _unconcerned(instance: Instance) -> Instance:
    """What a surviving plan without one GPU is a plan of: no survival, no spreading and no lower limits on replicas."""
    workloads = tuple(
        one.model_copy(update={"max_share_per_gpu": 1.0, "min_replicas": min(one.min_replicas, 1)})
        for one in instance.workloads
    )
    return _without(instance, workloads)


def _without(instance: Instance, workloads: tuple[Workload, ...]) -> Instance:
    """The instance with other workloads, no survival and no even rates."""
    return instance.with_policy(survive=None, even_replicas=False).replace(workloads=workloads)


def _doubled(instance: Instance, plan: Plan) -> Plan:
    """Every GPU of a plan that need not survive, twice: whichever is lost, the other one can carry what both did."""
    halved = changed(instance, plan, lambda one: one.model_copy(update={"rate_rps": one.rate_rps / 2}))
    twice = halved.model_copy(update={"gpus": tuple(gpu for gpu in halved.gpus for _ in range(2))})
    return dealt_evenly(instance, twice) if instance.policy.even_replicas else twice


def _choices(instance: Instance) -> Iterator[dict[str, int]]:
    """Over how many GPUs each workload is spread at least: about as many as carry it, and one to spare."""
    segments = best_segments(instance)
    most_rps = (segments.throughput_rps @ partitions_of(instance, segments).slots.T).max(axis=1)
    for more in range(1, 1 + MORE):
        yield {
            one.name: _limited(one, math.ceil(instance.planned_rps(one) / rps) + more if rps > 0 else 1 + more)
            for one, rps in zip(instance.workloads, most_rps.tolist(), strict=True)
        }


def _limited(workload: Workload, parts: int) -> int:
    """Parts of a workload as its limits allow, at least 2."""
    return max(2, min(parts, workload.max_replicas or parts, MOST_PARTS))


def _spread(instance: Instance, parts: dict[str, int]) -> Instance:
    """Every workload with its rate and more, no GPU with more than its part."""
    workloads = tuple(
        one.model_copy(update={
            "rate_rps": one.rate_rps * parts[one.name] / (parts[one.name] - 1) * SAFE,
            "max_share_per_gpu": min(one.max_share_per_gpu, 1 / parts[one.name]),
        } | _replicas(instance, parts[one.name])) if one.rate_rps else one
        for one in instance.workloads
    )
    return _without(instance, workloads)


def _replicas(instance: Instance, parts: int) -> dict[str, int]:
    """Limits on the replicas of a workload with so many parts: as many, where all of them carry the same."""
    return {"min_replicas": parts, "max_replicas": parts} if instance.policy.even_replicas else {}


def _routed(instance: Instance, parts: dict[str, int], plan: Plan) -> Plan:
    """A plan of the spread instance with the stated rates routed, as one of the instance."""
    stated = changed(instance, plan, lambda one: one.model_copy(update={
        "rate_rps": one.rate_rps * (parts[one.workload] - 1) / parts[one.workload]}))
    return dealt_evenly(instance, stated) if instance.policy.even_replicas else stated

"""Plans that survive the loss of any one GPU, derived from plans for increased and spread rates.

The idea: plan a workload for k / (k - 1) of its rate, with no GPU carrying more than 1 / k of the increased rate.
Whichever GPU is lost, the others still carry the whole rate. Such instances are planned for several choices of k. The
cheapest plan is returned, with the stated rates routed to its replicas. With ``even_replicas``, each of k GPUs has one
replica. All choices get quick plans first; then they are searched, and what seems cheapest comes first.

The bound: a surviving plan without its most expensive GPU is a plan of the instance without ``survive``. Such a plan
with every GPU doubled survives too.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np

from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Other, Run
from provision.solving.even import changed, dealt_evenly
from provision.solving.schedule import DETOUR

MORE, MOST_PARTS = 3, 12
"""The number of choices that are tried, and the most GPUs over which a workload is spread."""
SAFE = 1 + FORGIVEN
"""The factor on rates; it exceeds the sum of the verifier's tolerances."""


def surviving(instance: Instance, search: Search, run: Run) -> Outcome:
    """Find the best surviving plan, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``survive`` in its policy, and the Search.
    run
        Plans an instance without ``survive``.
    """
    detour, parts = Detour(instance, search, run, slack="no"), list(_choices(instance))
    choices = [Other(_spread(instance, one), partial(_routed, instance, one)) for one in parts]
    end = search.within(DETOUR.quick_s)
    for left, one in zip(range(len(choices), 0, -1), choices, strict=True):
        detour.begin(one, end.left_s / left)
    plain = Other(_unconcerned(instance), partial(_doubled, instance))
    detour.plan(plain)
    if detour.progress.plan is None and not plain.impossible and not detour.over:
        detour.plan(Other(_without(instance, instance.workloads), plain.back))
    estimates = _estimates(instance, parts, plain.plan)
    cheapest = [choices[at] for at in sorted(range(len(choices)), key=lambda at: estimates[at])]
    for _ in chain([plain], detour.in_turns([*cheapest, plain])):
        if plain.impossible:
            return Outcome("infeasible", "proved", reason=plain.reason)
        if plain.bound is not None:
            detour.progress.prove(plain.bound + _least_lost(instance))
    return detour.outcome(next((one.reason for one in reversed(cheapest) if one.reason), ""))


def _least_lost(instance: Instance) -> float:
    """The least value of a GPU that a plan may lose."""
    idle = not any(one.rate_rps for one in instance.workloads)
    return 0.0 if idle else min(map(objective_of(instance).weight, instance.fleet))


def _unconcerned(instance: Instance) -> Instance:
    """The instance for which a surviving plan without one of its GPUs is valid.

    It has no survival, no limit on the share per GPU, and no lower limit on replicas above 1.
    """
    workloads = tuple(
        one.model_copy(update={"max_share_per_gpu": 1.0, "min_replicas": min(one.min_replicas, 1)})
        for one in instance.workloads
    )
    return _without(instance, workloads)


def _without(instance: Instance, workloads: tuple[Workload, ...]) -> Instance:
    """The instance with other workloads, without survival and without even rates."""
    return instance.with_policy(survive=None, even_replicas=False).replace(workloads=workloads)


def _doubled(instance: Instance, plan: Plan) -> Plan:
    """The plan with every GPU doubled and rates halved. Whichever GPU is lost, its double can carry the rates of both.
    """
    halved = changed(instance, plan, lambda one: one.model_copy(update={"rate_rps": one.rate_rps / 2}))
    twice = halved.model_copy(update={"gpus": tuple(gpu for gpu in halved.gpus for _ in range(2))})
    return dealt_evenly(instance, twice) if instance.policy.even_replicas else twice


def _choices(instance: Instance) -> Iterator[dict[str, int]]:
    """Yield choices of the number of GPUs over which each workload is spread: about as many as carry it, plus 1, 2, ...
    """
    segments = best_segments(instance)
    most_rps = (segments.throughput_rps @ partitions_of(instance, segments).slots.T).max(axis=1, initial=0.0)
    for more in range(1, 1 + MORE):
        yield {
            one.name: _limited(one, math.ceil(instance.planned_rps(one) / rps) + more if rps > 0 else 1 + more)
            for one, rps in zip(instance.workloads, most_rps.tolist(), strict=True)
        }


def _estimates(instance: Instance, choices: list[dict[str, int]], plain: Plan | None) -> list[float]:
    """What plans of choices may cost: with more parts the rates are increased by less, and more GPUs are needed.

    Parameters
    ----------
    instance, choices
        The problem, and the number of parts of each workload in each choice.
    plain
        A plan that need not survive, whose cost is increased like the rates; None if none is known.
    """
    segments = best_segments(instance)
    partitions = partitions_of(instance, segments)
    weights = np.array([objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry.tolist()])
    rps = segments.throughput_rps @ partitions.slots.T
    each = np.divide(weights, rps, out=np.full(rps.shape, np.inf), where=rps > 0).min(axis=1, initial=np.inf).tolist()
    planned = [instance.planned_rps(one) for one in instance.workloads]
    alone = np.array([rate * cost if rate else 0.0 for rate, cost in zip(planned, each, strict=True)])
    known = plain is not None and 0 < alone.sum() < math.inf
    scale = objective_of(instance).value(plain) / alone.sum() if plain is not None and known else 1.0
    parts = np.array([list(one.values()) for one in choices])
    filled = scale * (parts / (parts - 1) * alone).sum(axis=1)
    return np.maximum(filled, parts.max(axis=1) * weights.min(initial=np.inf)).tolist()


def _limited(workload: Workload, parts: int) -> int:
    """The number of GPUs over which a workload is spread, within its limits and at least 2."""
    return max(2, min(parts, workload.max_replicas or parts, MOST_PARTS))


def _spread(instance: Instance, parts: dict[str, int]) -> Instance:
    """The instance with increased rates, and with the share per GPU limited to one part."""
    workloads = tuple(
        one.model_copy(update={
            "rate_rps": one.rate_rps * parts[one.name] / (parts[one.name] - 1) * SAFE,
            "max_share_per_gpu": min(one.max_share_per_gpu, 1 / parts[one.name]),
        } | _replicas(instance, parts[one.name])) if one.rate_rps else one
        for one in instance.workloads
    )
    return _without(instance, workloads)


def _replicas(instance: Instance, parts: int) -> dict[str, int]:
    """The limits on the replicas of a workload with ``parts`` parts: with ``even_replicas``, exactly as many."""
    return {"min_replicas": parts, "max_replicas": parts} if instance.policy.even_replicas else {}


def _routed(instance: Instance, parts: dict[str, int], plan: Plan) -> Plan:
    """A plan of the spread instance with the stated rates routed, as a plan of the instance."""
    stated = changed(instance, plan, lambda one: one.model_copy(update={
        "rate_rps": one.rate_rps * (parts[one.workload] - 1) / parts[one.workload]}))
    return dealt_evenly(instance, stated) if instance.policy.even_replicas else stated

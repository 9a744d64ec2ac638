"""Plans that survive the loss of any one GPU, derived from plans for increased and spread rates.

The idea: plan a workload for k / (k - 1) of its rate, with no GPU carrying more than 1 / k of the increased rate.
Whichever GPU is lost, the others still carry the whole rate. Such instances are planned for several choices of k. The
cheapest plan is returned, with the stated rates routed to its replicas. With ``even_replicas``, each of k GPUs has one
replica. All choices get quick plans before the first one is searched; what seems cheapest comes first.

The bound: a surviving plan without its most expensive GPU is a plan of the instance without ``survive``. The first plan
is a plan that need not survive, with every GPU doubled.
"""

import math
from functools import partial

import numpy as np

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

BOUND_SHARE, QUICK_SHARE, PLAN_SHARE = 0.3, 0.25, 0.5
"""The fractions of the remaining time for the bound, for the quick plans of all choices, and for each choice."""
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
    detour, reason = Detour(instance, search, run), ""
    found = detour.plan(_unconcerned(instance), BOUND_SHARE, partial(_doubled, instance), slack="no")
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
        detour.plan(_without(instance, instance.workloads), BOUND_SHARE, partial(_doubled, instance), slack="no")
    value = None if found.plan is None else objective_of(instance).value(found.plan)
    choices = [(parts, _spread(instance, parts)) for parts in _choices(instance, value)]
    begun, end = list[Plan | None](), search.until(QUICK_SHARE)
    for left, (parts, other) in zip(range(len(choices), 0, -1), choices, strict=True):
        share = 0.0 if detour.over else end.left_s / left / search.left_s
        quick = detour.quick(other, share) if share else Outcome("unknown", "time_limit")
        if quick.plan is not None:
            detour.offer(_routed(instance, parts, quick.plan))
        begun.append(quick.plan if quick.termination == "completed" else None)
    for (parts, other), start in zip(choices, begun, strict=True):
        if detour.over:
            break
        found = detour.plan(other, PLAN_SHARE, partial(_routed, instance, parts), start, slack="no")
        reason = found.reason or reason
    return detour.outcome(reason)


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


def _choices(instance: Instance, plain: float | None) -> list[dict[str, int]]:
    """Choices of the number of GPUs over which each workload is spread: about as many as carry it, plus 1, 2, ...

    Those that seem cheapest come first: with more parts the rates are increased by less, and more GPUs are needed.

    Parameters
    ----------
    instance
        The problem.
    plain
        The value of a plan that need not survive; None if none is known.
    """
    segments = best_segments(instance)
    partitions = partitions_of(instance, segments)
    weights = np.array([objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry.tolist()])
    rps = segments.throughput_rps @ partitions.slots.T
    each = np.divide(weights, rps, out=np.full(rps.shape, np.inf), where=rps > 0).min(axis=1, initial=np.inf)
    planned = [instance.planned_rps(one) for one in instance.workloads]
    alone = np.array([rate * cost if rate else 0.0 for rate, cost in zip(planned, each.tolist(), strict=True)])
    scale = 1.0 if plain is None or not 0 < alone.sum() < math.inf else plain / alone.sum()

    def estimate(choice: dict[str, int]) -> float:
        """The cost of the GPUs that the increased rates fill, or of as many GPUs as the most parts."""
        parts = np.array(list(choice.values()))
        return max(scale * float(alone @ (parts / (parts - 1))), float(parts.max() * weights.min(initial=math.inf)))

    return sorted(({
        one.name: _limited(one, math.ceil(rate / most) + more if most > 0 else 1 + more)
        for one, rate, most in zip(instance.workloads, planned, rps.max(axis=1, initial=0.0).tolist(), strict=True)
    } for more in range(1, 1 + MORE)), key=estimate)


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

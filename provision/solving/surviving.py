"""Plans that survive the loss of any one GPU, derived from plans for increased and spread rates.

The idea: plan a workload for k / (k - 1) of its rate, with no GPU carrying more than 1 / k of the increased rate.
Whichever GPU is lost, the others still carry the whole rate. Such instances are planned for several choices of k. The
cheapest plan is returned, with the stated rates routed to its replicas. With ``even_replicas``, each of k GPUs has one
replica. All choices get quick plans first. Then the instance without ``survive`` is searched, for the bound, and all
choices, the one with the best quick plan first.

The bound: a surviving plan without its most expensive GPU is a plan of the instance without ``survive``. Such a plan
with every GPU doubled survives too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from provision.formulations.search.fleet import partitions_of
from provision.formulations.search.segments import best_segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Other, Run, increased, routed, unchanged
from provision.solving.even import dealt_evenly
from provision.solving.schedule import SURVIVING, SurvivingSchedule


def surviving(instance: Instance, search: Search, run: Run, schedule: SurvivingSchedule = SURVIVING) -> Outcome:
    """Find the best surviving plan, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``survive`` in its policy, and the Search.
    run
        Plans an instance without ``survive``.
    schedule
        The choices to try.
    """
    finish = partial(dealt_evenly, instance) if instance.policy.even_replicas else unchanged
    detour = Detour(instance, search, run, schedule, finish, slack="no")
    choices = [Other(partial(_spread, instance, parts), partial(_without_one_part, parts=parts))
               for parts in _choices(instance, schedule)]
    doubled = partial(routed, parts=dict.fromkeys(instance.workload, 0.5), copies=2)
    plain = Other(lambda: _without(instance, [_unlimited(one) for one in instance.workloads]), doubled)
    limited = Other(lambda: _without(instance, instance.workloads), doubled)
    return detour.outcome(
        plain, [plain, *detour.quickly(choices), limited],
        lambda: next((one.known.reason for one in reversed(choices) if one.known.reason), ""),
        raised=lambda bound: bound + _least_lost(instance))


def _least_lost(instance: Instance) -> float:
    """The least value of a GPU that a plan may lose."""
    idle = not any(one.rate_rps for one in instance.workloads)
    return 0.0 if idle else min(map(objective_of(instance).weight, instance.fleet))


def _unlimited(workload: Workload) -> Workload:
    """A workload without what a surviving plan may break without one of its GPUs: a limit on the share per GPU, and a
    lower limit on replicas above 1.
    """
    return workload.model_copy(update={"max_share_per_gpu": 1.0, "min_replicas": min(workload.min_replicas, 1)})


def _without(instance: Instance, workloads: Sequence[Workload]) -> Instance:
    """The instance with other workloads, without survival and without even rates."""
    return instance.with_policy(survive=None, even_replicas=False).replace(workloads=workloads)


def _choices(instance: Instance, schedule: SurvivingSchedule) -> Iterator[dict[str, int]]:
    """Yield choices of the number of GPUs over which each workload is spread: about as many as carry it, plus 1, 2, ...
    """
    segments = best_segments(instance)
    most_rps = (segments.throughput_rps @ partitions_of(instance, segments).slots.T).max(axis=1, initial=0.0)
    for more in range(1, 1 + schedule.choices):
        yield {
            one.name: max(2, min(math.ceil(instance.planned_rps(one) / rps) + more if rps > 0 else 1 + more,
                                 one.max_replicas or schedule.most_parts, schedule.most_parts))
            for one, rps in zip(instance.workloads, most_rps.tolist(), strict=True)
        }


def _spread(instance: Instance, parts: Mapping[str, int]) -> Instance:
    """The instance with increased rates, each in so many parts; with ``even_replicas``, every part is one replica."""
    workloads = [increased(one, parts[one.name]) if one.rate_rps else one for one in instance.workloads]
    if instance.policy.even_replicas:
        workloads = [one.model_copy(update=dict.fromkeys(("min_replicas", "max_replicas"), parts[one.name]))
                     if one.rate_rps else one for one in workloads]
    return _without(instance, workloads)


def _without_one_part(plan: Plan, parts: Mapping[str, int]) -> Plan:
    """A plan of the spread instance with the stated rates, which are those of all parts but one."""
    return routed(plan, {name: (number - 1) / number for name, number in parts.items()})

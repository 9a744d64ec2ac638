"""Makes the instance with one replica for each workload. It is solved first, and its plan and columns start the main
search.

Where replicas share GPUs, splitting workloads seldom saves many GPUs. But it makes a larger program, whose prices
converge slowly. So the program without splits is solved first: its plan is feasible for the whole instance, its
patterns are columns of the program with splits, and its prices are the first prices there.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from provision.formulations.master.centre import Centre
from provision.formulations.master.generation import Generation
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs


def unsplit(instance: Instance) -> Instance | None:
    """The instance with one replica for each workload that a single replica can carry; None where nothing would change.

    It is also None unless replicas share GPUs under interference: with other ways of sharing, splits are quick to plan.
    """
    if "interference" not in needs(instance):
        return None
    most_rps = best_segments(instance).throughput_rps.max(axis=1, initial=0.0)
    free = np.array([one.max_replicas != 1 and one.min_replicas <= 1 and one.max_share_per_gpu == 1
                     and instance.planned_rps(one) <= most_rps[at] for at, one in enumerate(instance.workloads)])
    if not free.any():
        return None
    return instance.replace(workloads=tuple(one.model_copy(update={"max_replicas": 1}) if chosen else one
                                            for one, chosen in zip(instance.workloads, free.tolist(), strict=True)))


def keeps_limits(instance: Instance, plan: Plan) -> bool:
    """Whether a plan has no more replicas of any workload than the instance allows."""
    replicas = Counter(one.workload for gpu in plan.gpus for piece in gpu.slices for one in piece.replicas)
    return all(one.max_replicas is None or replicas[one.name] <= one.max_replicas for one in instance.workloads)


def first_prices(whole: Generation, problem: Problem) -> Centre:
    """First prices for a program with splits, from the central prices of the program without splits. They prove no
    bound.

    Within a workload class, prices are interpolated between the rates of the program without splits. Below the least of
    these rates, the price of a role is proportional to its rate, so that many small roles are not cheaper than one
    large role.
    """
    known = sorted((role.workload_class, role.rate_rps, price)
                   for role, price in zip(whole.problem.roles, whole.centre.roles.tolist(), strict=True))
    ends = [0, *(at for at, (one, other) in enumerate(pairwise(known), 1) if one[0] != other[0]), len(known)]
    by_class = {known[start][0]: np.array([(0.0, 0.0), *(one[1:] for one in known[start:end])]).T
                for start, end in pairwise(ends)}
    roles = np.zeros(len(problem.roles))
    for at, role in enumerate(problem.roles):
        if role.workload_class in by_class:
            rates_rps, prices = by_class[role.workload_class]
            rate_rps = max(role.rate_rps, min(role.upto_rps, rates_rps[1]))
            roles[at] = np.interp(rate_rps, rates_rps, prices)
    return Centre(0.0, whole.centre.slice_types, roles)

"""Divides workloads into equal parts, which have one replica each and are planned like workloads of their own."""

import math

import numpy as np

from provision.formulations.search.problem import Group, Problem
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import DUST
from provision.models.problem.objective import objective_of


def in_parts(problem: Problem) -> list[Group]:
    """Divide the workloads of groups into parts, and return groups of parts with one replica each.

    A workload that is divided into n parts is n members of its group. Workloads of which a GPU may carry only a part
    stay as they are: nothing would keep their parts on different GPUs.
    """
    most_rps, found = _part_rps(problem), list[Group]()
    for group in problem.groups:
        if group.cap_rps < group.rate_rps:
            found.append(group)
            continue
        for member in group.members:
            needed = math.ceil(group.rate_rps / most_rps[member] * (1 - DUST)) if most_rps[member] > 0 else 1
            pieces = int(min(max(needed, group.least, 1), group.most))
            found.append(group._replace(rate_rps=group.rate_rps / pieces, least=1, most=1, members=(member,) * pieces))
    alike: dict[Group, list[int]] = {}
    for group in found:
        alike.setdefault(group._replace(members=()), []).extend(group.members)
    return [group._replace(members=tuple(members)) for group, members in alike.items()]


def _part_rps(problem: Problem) -> Floats:
    """(workloads,), the rate (requests/s) up to which one replica alone on a slice carries a workload; 0 if none does.

    If max_replicas is set, it is the rate on the fastest slice type. Otherwise it is the rate on the slice type with
    the least price per request/s, if possible among GPUs without a limited count.
    """
    instance, segments = problem.instance, problem.segments
    if not segments.slice_types:
        return np.zeros(len(instance.workloads))
    rps, entries = segments.throughput_rps, [instance.fleet[slice_type.entry] for slice_type in segments.slice_types]
    price = np.array([objective_of(instance).weight(entry) for entry in entries])
    cost = np.divide(price, rps, out=np.full_like(rps, np.inf), where=rps > 0)
    endless = np.where([entry.count is None for entry in entries], cost, np.inf)
    chosen = np.where(np.isfinite(endless).any(axis=1), endless.argmin(axis=1), cost.argmin(axis=1))
    free = [one.max_replicas is None for one in instance.workloads]
    return np.where(free, rps[np.arange(len(rps)), chosen], rps.max(axis=1))

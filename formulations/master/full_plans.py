"""From patterns with the rates that they carry to a plan: workloads for the replicas, and rates."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.held import Column, replica_of
from provision.formulations.master.plans import dealt
from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.search.problem import Problem
from provision.models.base.tolerances import DUST
from provision.models.plans.plan import Plan

ENOUGH = 1 - DUST
"""The part of a rate that replicas must be able to carry; the rest is rounding."""


def full_plan(problem: Problem, partitions: list[NDArray[np.int64]], patterns: list[Column], method: str
              ) -> Plan | None:
    """The plan of a solution; None when some workload, or some GPU's part of one, does not get its rate.

    Parameters
    ----------
    problem
        What was solved.
    partitions, patterns
        (partitions,) GPUs of each pool, and the patterns of their slices.
    method
        The name to write into the plan.
    """
    workloads = _workloads(problem, patterns)
    shared = [tuple(replica_of(problem, member, workloads[at, place]) for place, member in enumerate(one.members))
              for at, one in enumerate(patterns)]
    for apart in (False, True):
        layouts = _layouts(problem, partitions, patterns, workloads, apart)
        gpu_of = {index - len(problem.instance.workloads): at for at, layout in enumerate(layouts or ())
                  for _, index in layout.segments}
        places = [(at, place, gpu_of.get(at, 0)) for at, one in enumerate(patterns)
                  for place in range(len(one.members))]
        rates = _rates(problem, patterns, workloads, places)
        if layouts is not None and rates is not None:
            routed = [tuple(replica.model_copy(update={"rate_rps": rates[at, place]})
                            for place, replica in enumerate(one)) for at, one in enumerate(shared)]
            return assemble(problem.instance, problem.segments, layouts, method, routed)
    return None


def _layouts(problem: Problem, partitions: list[NDArray[np.int64]], patterns: list[Column],
             workloads: dict[tuple[int, int], int], apart: bool) -> list[Layout] | None:
    """GPUs with their patterns, all as shared slices; None when the fleet has too few.

    Where ``apart``, lone replicas of workloads that have a share per GPU are put on different GPUs.
    """
    rows = np.zeros((len(problem.instance.workloads) + len(patterns), len(problem.segments.slice_types)), int)
    alone: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for at, one in enumerate(patterns):
        row = workloads[at, 0] if apart and len(one.members) == 1 else len(problem.instance.workloads) + at
        rows[row, one.slice_type] += 1
        alone[one.slice_type, row].append(len(problem.instance.workloads) + at)
    layouts = dealt(problem, partitions, rows)
    return layouts and [
        Layout(one.entry, tuple((slice_type, alone[slice_type, row].pop()) for slice_type, row in one.segments))
        for one in layouts
    ]


def _workloads(problem: Problem, patterns: list[Column]) -> dict[tuple[int, int], int]:
    """The workload of every replica, by (pattern, place): the largest replicas first, to the workload that lacks most.

    Workloads that have fewer replicas than they must go before all others.
    """
    found: dict[tuple[int, int], int] = {}
    lacks = {member: group.rate_rps for group in problem.groups for member in group.members}
    number = dict.fromkeys(lacks, 0)
    replicas = sorted(((one.rps[place], at, place) for at, one in enumerate(patterns)
                       for place in range(len(one.members))), reverse=True)
    for rps, at, place in replicas:
        group = problem.groups[patterns[at].members[place].group]
        free = [one for one in group.members if number[one] < group.most]
        _, _, best = max((number[one] < group.least, lacks[one], one) for one in free)
        found[at, place] = best
        lacks[best] -= rps
        number[best] += 1
    return found


def _rates(problem: Problem, patterns: list[Column], workloads: dict[tuple[int, int], int],
           places: list[tuple[int, int, int]]) -> dict[tuple[int, int], float] | None:
    """Rates of all replicas in proportion to what they carry, no GPU above its share; None where that falls short."""
    caps = {member: group.cap_rps for group in problem.groups for member in group.members}
    on_gpu: defaultdict[tuple[int, int], float] = defaultdict(float)
    for at, place, gpu in places:
        on_gpu[workloads[at, place], gpu] += patterns[at].rps[place]
    total: defaultdict[int, float] = defaultdict(float)
    for (one, _), rps in on_gpu.items():
        total[one] += min(rps, caps[one])
    if any(total[one] < problem.planned_rps(one) * ENOUGH for one in caps):
        return None
    rates = {}
    for at, place, gpu in places:
        one = workloads[at, place]
        part = patterns[at].rps[place] * min(1.0, caps[one] / on_gpu[one, gpu])
        rates[at, place] = part * min(1.0, problem.planned_rps(one) / total[one])
    return rates

"""Spreads workloads over explicit GPUs, where a GPU may carry only part of a workload's rate, by CP-SAT.

Partition counts do not say which segments share a GPU. Here every GPU has variables of its own: it takes one partition
of its fleet entry, and the segments of a workload on it count for no more than the workload's largest share.
Throughputs are scaled to whole numbers and rounded down, so that every solution is feasible.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from provision.formulations.pricing.alone.assemble import Layout
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments, cap_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

UNITS = 10**12
"""The whole-number units into which a workload's rate is divided."""
MOST_SPREAD_GPUS = 64
"""The search is tried with at most this number of GPUs."""
EXTRA_GPUS = 2
"""Up to this many GPUs more than the given numbers are tried."""
MOST_SECONDS = 20.0
"""The time limit of one search in seconds."""

Counts = dict[tuple[int, int, int], cp_model.IntVar]
"""Variables by (workload, slice type, GPU): how many segments of the workload the GPU has on slices of the type."""


class Demand(NamedTuple):
    """An instance whose workloads are to be spread, with its segments and partitions.

    ``useful_rps`` (workloads, slice types) are a segment's requests/s, at most what may be routed to one GPU.
    ``rate_rps`` (workloads,) are the planned rates.
    """

    instance: Instance
    segments: Segments
    partitions: Partitions
    useful_rps: Floats
    rate_rps: Floats


def spread_out(demand: Demand, gpus: Ints, until: Deadline) -> list[Layout] | None:
    """Layouts on as many GPUs as a partition-counts solution has, or a few more.

    Parameters
    ----------
    demand
        What is to be spread.
    gpus
        (partitions,) the GPUs in that solution. Only their number per fleet entry is used.
    until
        When to end without a result.

    Returns
    -------
    list of Layout, or None when none was found.
    """
    fleet = demand.instance.fleet
    number = [int(gpus[demand.partitions.entry == entry].sum()) for entry in range(len(fleet))]
    for _ in range(EXTRA_GPUS + 1):
        left_s = until.left_s
        if sum(number) > MOST_SPREAD_GPUS or left_s <= 0:
            return None
        found = _search(demand, np.repeat(np.arange(len(fleet)), number).tolist(), min(left_s, MOST_SECONDS))
        open_entries = [index for index, (entry, used) in enumerate(zip(fleet, number, strict=True))
                        if entry.count is None or used < entry.count]
        if found is not None or not open_entries:
            return found
        number[min(open_entries, key=lambda entry: objective_of(demand.instance).weight(fleet[entry]))] += 1
    return None


def _search(demand: Demand, entries: Sequence[int], limit_s: float) -> list[Layout] | None:
    """Layouts on GPUs of these fleet entries; None if none are found in time."""
    problem = cp_model.CpModel()
    count = _slots_taken(problem, demand, entries)
    _carry_rates(problem, demand, count, len(entries))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    solver.parameters.presolve_inclusion_work_limit = 0  # google/or-tools#5293: presolve may lose solutions
    if solver.solve(problem) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    layouts: list[list[tuple[int, int]]] = [[] for _ in entries]
    for (w, k, g), variable in count.items():
        layouts[g] += [(k, w)] * solver.value(variable)
    return [Layout(entry, tuple(held)) for entry, held in zip(entries, layouts, strict=True)]


def _slots_taken(problem: cp_model.CpModel, demand: Demand, entries: Sequence[int]) -> Counts:
    """Add variables for the segments of workload w on slice type k of GPU g, within the slots of one partition per GPU.
    """
    count: Counts = {}
    before: cp_model.LinearExprT = 0
    for g, entry in enumerate(entries):
        partitions = np.flatnonzero(demand.partitions.entry == entry)
        takes = {c: problem.new_bool_var(f"takes_{g}_{c}") for c in partitions.tolist()}
        problem.add_exactly_one(takes.values())
        rank = sum(int(c) * variable for c, variable in takes.items())
        if g and entries[g - 1] == entry:
            problem.add(before <= rank)  # break symmetry: the partitions of GPUs of one entry ascend
        before = rank
        slots = demand.partitions.slices(takes)
        for k in demand.segments.of_entry(entry):
            most = int(demand.partitions.slots[partitions, k].max())
            mine = np.flatnonzero(demand.useful_rps[:, k])
            count |= {(int(w), k, g): problem.new_int_var(0, most, f"count_{w}_{k}_{g}") for w in mine}
            problem.add(sum(count[int(w), k, g] for w in mine) <= sum(slots[k]))
    return count


def _carry_rates(problem: cp_model.CpModel, demand: Demand, count: Counts, gpus: int) -> None:
    """Add rows: every workload's rate is carried by enough replicas, and on no GPU more than its largest share."""
    caps = cap_rps(demand.instance)
    for w, (workload, rate) in enumerate(zip(demand.instance.workloads, demand.rate_rps, strict=True)):
        mine = {at: variable for at, variable in count.items() if at[0] == w}
        problem.add(sum(mine.values()) >= workload.min_replicas)
        if workload.max_replicas is not None:
            problem.add(sum(mine.values()) <= workload.max_replicas)
        if rate == 0:
            continue
        most = round(UNITS * min(1.0, caps[w] / rate))
        carried = [problem.new_int_var(0, most, f"carried_{w}_{g}") for g in range(gpus)]
        for g in range(gpus):
            on_gpu = [int(UNITS * demand.useful_rps[w, k] / rate) * v for (_, k, at), v in mine.items() if at == g]
            problem.add(carried[g] <= sum(on_gpu))
        problem.add(sum(carried) >= UNITS - gpus)  # rounding loses one unit per GPU

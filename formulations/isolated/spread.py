"""Spreading workloads over explicit GPUs, where no GPU may carry more than a part of a workload (CP-SAT).

Counting GPUs by partition does not see which segments share a GPU. Here every GPU stands for itself: it takes
one partition of its fleet entry, and a workload's segments on it count for no more than its largest share.
Throughputs are scaled to whole numbers and rounded down, so that every solution holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from provision.formulations.pricing.alone.assemble import Layout
from provision.formulations.search.segments import cap_rps
from provision.models.base.arrays import Ints
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Deadline

if TYPE_CHECKING:
    from provision.formulations.isolated.partition_counts import PartitionCounts

UNITS = 10**12
"""Whole-number units that a workload's rate is divided into."""
MOST_SPREAD_GPUS = 64
"""The largest number of GPUs with which the search is tried."""
EXTRA_GPUS = 2
"""How many GPUs more than asked for are tried."""
MOST_SECONDS = 20.0


Counts = dict[tuple[int, int, int], cp_model.IntVar]
"""Variables by (workload, slice type, GPU): how many segments stand there."""


def spread_out(model: PartitionCounts, gpus: Ints, until: Deadline) -> list[Layout] | None:
    """Layouts with the numbers of GPUs of a partition-counts solution, or a few more.

    Parameters
    ----------
    model
        The PartitionCounts model.
    gpus
        (partitions,) GPUs in its solution; only their number per fleet entry counts.
    until
        When to give up.

    Returns
    -------
    list of Layout, or None when none was found.
    """
    fleet = model.instance.fleet
    number = [int(gpus[model.partitions.entry == entry].sum()) for entry in range(len(fleet))]
    for _ in range(EXTRA_GPUS + 1):
        left_s = until.left_s
        if sum(number) > MOST_SPREAD_GPUS or left_s <= 0:
            return None
        found = _search(model, np.repeat(np.arange(len(fleet)), number).tolist(), min(left_s, MOST_SECONDS))
        open_entries = [index for index, (entry, used) in enumerate(zip(fleet, number, strict=True))
                        if entry.count is None or used < entry.count]
        if found is not None or not open_entries:
            return found
        number[min(open_entries, key=lambda entry: objective_of(model.instance).weight(fleet[entry]))] += 1
    return None


def _search(model: PartitionCounts, entries: Sequence[int], limit_s: float) -> list[Layout] | None:
    """Layouts on GPUs of these fleet entries, or None."""
    problem = cp_model.CpModel()
    count = _slots_taken(problem, model, entries)
    _carry_rates(problem, model, count, len(entries))
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


def _slots_taken(problem: cp_model.CpModel, model: PartitionCounts, entries: Sequence[int]) -> Counts:
    """Segments of workload w on slice type k of GPU g, within the slots of one partition per GPU."""
    count: Counts = {}
    before: cp_model.LinearExprT = 0
    for g, entry in enumerate(entries):
        partitions = np.flatnonzero(model.partitions.entry == entry)
        takes = {c: problem.new_bool_var(f"takes_{g}_{c}") for c in partitions}
        problem.add_exactly_one(takes.values())
        rank = sum(int(c) * variable for c, variable in takes.items())
        if g and entries[g - 1] == entry:
            problem.add(before <= rank)  # GPUs of one entry are alike: partitions in order
        before = rank
        for k in model.segments.of_entry(entry):
            slots = sum(int(model.partitions.slots[c, k]) * variable for c, variable in takes.items())
            most = int(model.partitions.slots[partitions, k].max())
            mine = np.flatnonzero(model.useful_rps[:, k])
            count |= {(int(w), k, g): problem.new_int_var(0, most, f"count_{w}_{k}_{g}") for w in mine}
            problem.add(sum(count[int(w), k, g] for w in mine) <= slots)
    return count


def _carry_rates(problem: cp_model.CpModel, model: PartitionCounts, count: Counts, gpus: int) -> None:
    """Every workload's rate is carried, on no GPU more than its largest share, by enough replicas."""
    caps = cap_rps(model.instance)
    for w, (workload, rate) in enumerate(zip(model.instance.workloads, model.rate_rps, strict=True)):
        mine = {at: variable for at, variable in count.items() if at[0] == w}
        problem.add(sum(mine.values()) >= workload.min_replicas)
        if workload.max_replicas is not None:
            problem.add(sum(mine.values()) <= workload.max_replicas)
        if rate == 0:
            continue
        most = round(UNITS * min(1.0, caps[w] / rate))
        carried = [problem.new_int_var(0, most, f"carried_{w}_{g}") for g in range(gpus)]
        for g in range(gpus):
            on_gpu = [int(UNITS * model.useful_rps[w, k] / rate) * v for (_, k, at), v in mine.items() if at == g]
            problem.add(carried[g] <= sum(on_gpu))
        problem.add(sum(carried) >= UNITS - gpus)  # rounding loses a unit per GPU, within the verifier's tolerance

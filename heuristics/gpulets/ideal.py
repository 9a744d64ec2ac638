"""gpu-lets' ideal scheduler (ATC 2022, section 6.2): it tries all splits of the GPUs until one serves all rates. Since
the GPUs are equal, only 35 of the paper's 4^4 cases on four GPUs differ. The search ends with the first split that
works. The paper does not say how workloads are put on given gpu-lets: here Algorithm 1 without SPLIT does it, and if no
free gpu-let has the wanted size, the largest free gpu-let is taken. The plan of elastic partitioning is tried first,
and fewer GPUs are tried before more.
"""

from itertools import combinations_with_replacement
from typing import Any

from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import RESERVE, Gpus, Part, chosen, elastic_partitioning, planning_tables
from provision.heuristics.gpulets.plans import FEATURES, GpuletTables, outcome
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance on the first split, by number of GPUs, on which all rates find gpu-lets."""
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    tables, most = planning_tables(instance, chosen(control)), instance.fleet[0].count
    elastic = Gpus(tables, most)
    stuck = elastic_partitioning(elastic)
    best = None if stuck else elastic.loads()
    for number in range(1, len(best) if best else (most or 0) + 1):
        found = _first(tables, number, control)
        if found:
            best = found
            break
    return outcome(tables, best, "gpulets-ideal", stuck)


def _first(tables: GpuletTables, number: int, control: Search) -> list[Any] | None:
    """The loads of the first split of ``number`` GPUs that serves all rates, as (share, load) pairs per GPU; None if no
    split does.
    """
    for splits in combinations_with_replacement(tables.data.splits, number):
        if not control.left_s:
            return None
        cut = [[Part(tables.shares.index(share)) for share in split] for split in splits]
        gpus = Gpus(tables, number, cut)
        if not elastic_partitioning(gpus, splitting=False):
            return gpus.loads()
    return None


METHODS = (
    Method(
        name="gpulets-ideal",
        summary="every way to cut the GPUs into gpu-lets, each filled by Algorithm 1",
        run=solve,
        source="gpu-lets, ATC 2022, section 6.2",
        features=FEATURES,
        parameters=RESERVE,
    ),
)

"""GSLICE's self-tuning (SoCC 2020), in the version with which the authors of gpu-lets compare their own method. This
version uses profiles (ATC 2022, section 6.1).

From the papers: every workload gets parts of GPUs until its rate is carried. The parts have the workload's most
efficient size, and each carries the largest throughput that the SLO allows. Workloads do not run in turns, and
interference is ignored. If the data predicts that the plan misses an SLO because of neighbours, the outcome is
``unknown``, with this reason.

The papers leave three points open, which are guessed: workloads are placed in descending order of rate; each takes the
smallest free part of at least its size, and if there is none, a GPU is split; the most efficient size is the knee that
Algorithm 1 of gpu-lets computes.
"""

import numpy as np

from provision.formulations.pricing.temporal.oracle import FEATURES, outcome
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import DONE, efficient_shares, find_best_fit
from provision.heuristics.gpulets.parts import Gpus
from provision.heuristics.gpulets.tolerances import RESERVE, chosen, planning_tables
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with parts of the most efficient size for every workload."""
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    tables = planning_tables(instance, chosen(control), interference=False)
    gpus = Gpus(tables, instance.fleet[0].count)
    stuck = _fill(gpus)
    return outcome(tables, None if stuck else gpus.loads(), "gslice", stuck)


def _fill(gpus: Gpus) -> str:
    """Give all workloads their parts; return "", or the reason if a workload finds too few parts."""
    efficient = efficient_shares(gpus.tables)
    for workload in np.argsort(-gpus.tables.rates, kind="stable").tolist():
        left = rate = gpus.tables.rates[workload]
        while left > DONE * rate:
            found = find_best_fit(gpus, efficient[workload], workload, left)
            if not found:
                return f"no part left for workload {gpus.tables.instance.workloads[workload].name}; allow more GPUs"
            gpus.put(*found[:2])
            left -= found[2]
    return ""


METHODS = (
    Method(
        name="gslice",
        summary="parts of the most efficient size, one workload on each, interference ignored",
        run=solve,
        source="GSLICE, SoCC 2020; gpu-lets, ATC 2022, section 6.1",
        features=FEATURES,
        parameters=RESERVE,
    ),
)

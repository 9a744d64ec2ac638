"""BDA-Gpulet: gpu-lets' placement with InSS's batches (InSS, section 6.3).

``gpulets+``, the version of gpu-lets with which iGniter is compared, decides GPUs and shares; a batch may take at most
half of the SLO. InSS's Algorithm 1 then decides all batches anew. If it finds no batch for a workload, the default is
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.heuristics.gpulets_plus.gpulets_plus import METHODS as GPULETS
from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.inss import FEATURES, missed, plan_of
from provision.heuristics.inss.system import Judged, Provisioning, System
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search

NAME = "gpulets+bda"


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with the placement of gpu-lets+ and the batches of InSS."""
    single = tuple(one.model_copy(update={"max_replicas": 1}) for one in instance.workloads)
    half = instance.replace(workloads=single).with_policy(latency_budget="half_slo")
    system, placed = System(instance), GPULETS[0].run(half, control)
    if placed.plan is None:
        return placed
    where = {replica.workload: (at, replica) for at, _, _, replica in placed.plan.replicas()}
    gpu, replicas = zip(*(where[one.name] for one in instance.workloads), strict=True)
    units = [round(one.sm_share / system.data[0].hardware.unit_share) for one in replicas]
    given = Provisioning(np.array([gpu]), np.array([units]))
    nothing = np.zeros((1, system.workloads))
    batch, _ = decide_batches(system, given, system.rates_rps[None], nothing)
    found = keeping(System(instance, judged=Judged.BY_DATA), given, batch, system.rates_rps[None], nothing)
    plan = plan_of(system, NAME, given.gpu[0], given.units[0], batch[0])
    if found.all():
        return Outcome("feasible", "completed", plan)
    reason = f"where gpu-lets places them, no batch meets the SLO and the rate of {missed(instance, found[0])}"
    return Outcome("unknown", "completed", plan, reason=reason)


METHODS = (
    Method(
        name=NAME,
        summary="gpu-lets' placement as in gpulets+, batches by InSS's binary search",
        run=solve,
        source="InSS, section 6.3",
        features=FEATURES - {"several_gpu_types"},
    ),
)

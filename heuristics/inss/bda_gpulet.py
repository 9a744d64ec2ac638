"""InSS's gpu-lets (sections 6.1 and 6.3): the placement of gpu-lets with the batches that InSS gives it.

``gpulets+``, the version of gpu-lets with which iGniter is compared, decides GPUs and shares; a batch may take at most
half of the SLO. ``gpulets+largest`` then takes for each workload, as InSS's baseline does, the largest batch that alone
takes at most half of the SLO. A timeout of half of the SLO starts batches that are not full, so that the true batch is
what arrives until then, if that is less; the plan has the true batch. ``gpulets+bda`` is BDA-Gpulet: InSS's Algorithm 1
decides all batches anew. If it finds no batch for a workload, the default is kept.
"""

import numpy as np

from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.inss import FEATURES, missed, plan_of, running
from provision.heuristics.inss.system import Judged, Provisioning, System
from provision.heuristics.rivals.gpulets_plus import METHODS as GPULETS
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search

LARGEST, BDA = "gpulets+largest", "gpulets+bda"


def solve_largest(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with the placement of gpu-lets+ and the largest batches within half of the SLO alone."""
    placed = _placed(instance, control)
    return placed if isinstance(placed, Outcome) else _judged(instance, LARGEST, placed, _largest(instance, placed))


def solve_bda(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with the placement of gpu-lets+ and the batches of InSS."""
    placed = _placed(instance, control)
    if isinstance(placed, Outcome):
        return placed
    system = System(instance)
    batch, _ = decide_batches(system, placed, system.rates_rps[None], np.zeros((1, system.workloads)))
    return _judged(instance, BDA, placed, batch)


def _placed(instance: Instance, control: Search) -> Provisioning | Outcome:
    """Where gpu-lets+ places every workload as one replica; its own Outcome if it has no plan."""
    single = tuple(one.model_copy(update={"max_replicas": 1}) for one in instance.workloads)
    half = instance.replace(workloads=single).with_policy(latency_budget="half_slo")
    placed = GPULETS[0].run(half, control)
    if placed.plan is None:
        return placed
    return running(System(instance), placed.plan)


def _largest(instance: Instance, placed: Provisioning) -> Ints:
    """(1, workloads), for each workload the largest batch that alone takes at most half of the SLO and whose requests
    arrive within half of the SLO, at least 1.
    """
    alone = System(instance, interference=False, judged=Judged.BY_DATA)
    ones = np.ones_like(placed.gpu)
    sizes = []
    for at, slo_ms in enumerate(alone.slo_ms):
        members, kind = placed.together_with(at), alone.kind[placed.gpu[:, at]]
        latency_ms, _ = alone.at_every_batch(at, members, placed.units, ones, kind)
        arriving = 1 + int(alone.rates_rps[at] * slo_ms / 2 / 1000)
        sizes.append(min(1 + int(np.flatnonzero(latency_ms[:, 0] <= slo_ms / 2).max(initial=0)), arriving))
    return np.array([sizes])


def _judged(instance: Instance, name: str, given: Provisioning, batch: Ints) -> Outcome:
    """The Outcome with these placements and batches; ``unknown`` if they break eq. 2 or a rate by the data."""
    system = System(instance, judged=Judged.BY_DATA)
    found = keeping(system, given, batch, system.rates_rps[None], np.zeros((1, system.workloads)))
    plan = plan_of(system, name, given.gpu[0], given.units[0], batch[0])
    if found.all():
        return Outcome("feasible", "completed", plan)
    reason = f"where gpu-lets places them, the batches miss the SLO or the rate of {missed(instance, found[0])}"
    return Outcome("unknown", "completed", plan, reason=reason)


METHODS = (
    Method(
        name=LARGEST,
        summary="placement of gpulets+, the largest batches within half of the SLO that fill in the other",
        run=solve_largest,
        source="InSS, section 6.1",
        features=FEATURES,
    ),
    Method(
        name=BDA,
        summary="gpu-lets' placement as in gpulets+, batches by InSS's binary search",
        run=solve_bda,
        source="InSS, section 6.3",
        features=FEATURES,
    ),
)

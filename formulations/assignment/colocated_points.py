"""Operating points by the co-location model, with the coefficients of their rows."""

from dataclasses import dataclass

import numpy as np

from provision.formulations.assignment.points import Points, choices, longest_hold_ms, undominated
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.colocation import Colocation, Terms, solo_terms
from provision.models.performance.sm_shares import units_of
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.workload import Workload


@dataclass(frozen=True)
class ColocatedPoints(Points):
    """Points on a GPU whose replicas slow each other by their demands of shared resources.

    Beside neighbours whose demands of resource k to the power of ``norm_order`` add up to S[k], a batch takes
    ``solo + sum over k of slope[k] * S[k] ** (1 / norm_order)``. Divided by what is left of its deadline alone, that
    is ``sum over k of per_norm[k] * S[k] ** (1 / norm_order) <= 1``. ``demand`` is to that power.
    """

    norm_order: float
    solo_ms: Floats
    slope_ms: Floats
    per_norm: Floats

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """See ``Points``."""
        return self.solo_ms[at] + (self.slope_ms[:, at] * others ** (1 / self.norm_order)).sum(0) - self.load_ms[at]


def colocated_points(
    instance: Instance, workload: Workload, number: int, data: Colocation, mps: bool
) -> ColocatedPoints:
    """The Points of one model (``number`` among the workload's) that are not dominated by others of it."""
    model, units = workload.models[number], units_of(data.unit_share)
    batch, many, memory_gib = choices(data, model, units, data.max_batch, mps)
    terms = solo_terms(data, model, batch, data.unit_share * many)
    hold_ms = longest_hold_ms(instance, workload, terms.batch, terms.overlap_ms)
    left_ms = hold_ms + terms.overlap_ms - terms.solo_ms
    kept = np.flatnonzero(left_ms > 0)
    per_norm = terms.slope_ms[kept].T / left_ms[kept]
    if instance.objective != THROUGHPUT:
        best = undominated(np.column_stack([many[kept], memory_gib[kept], terms.demand[kept], per_norm.T]))
        kept, per_norm = kept[best], per_norm[:, best]
    terms = Terms(*(column[kept] for column in terms))
    rps = 1000 * terms.batch / (terms.solo_ms - terms.overlap_ms)
    return ColocatedPoints(
        np.full(len(kept), float(number)), terms.batch, many[kept].astype(float), memory_gib[kept], rps,
        terms.overlap_ms, hold_ms[kept], terms.demand.T, data.norm_order, terms.solo_ms, terms.slope_ms.T, per_norm,
    )

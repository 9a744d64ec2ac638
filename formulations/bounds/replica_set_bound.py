"""A proven lower bound from cheapest replica sets, in whole numbers, computed within milliseconds.

Every slice type gets a price, a small whole number. The slices that a plan uses for a workload cost at least as much as
the workload's cheapest replica set (`provision.formulations.pricing.alone.replica_sets`). The slices of a GPU cost at
most as much as the dearest partition. So the total price of all cheapest replica sets, divided by the price of the
dearest partition, is a lower bound on the number of GPUs. (This is linear programming duality with a given dual
solution, and all rounding is safe.) Three price vectors are tried: compute slices, memory slices, and the sum of both.
"""

import math
from fractions import Fraction

import numpy as np

from provision.formulations.pricing.alone.replica_sets import SegmentSets, cheapest_replica_sets
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import LOOSE
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


def replica_set_bound(
    instance: Instance, useful_rps: Floats, segments: Segments, partitions: Partitions
) -> tuple[float, SegmentSets]:
    """A lower bound on the objective, and for every workload the replica set with the fewest compute slices.

    Parameters
    ----------
    instance
        The problem.
    useful_rps
        (workloads, slice types) the throughput of a segment in requests/s, at most what may be routed to one GPU.
    segments, partitions
        The problem's segments and partitions.

    Returns
    -------
    bound
        A lower bound on the objective of every plan of isolated segments.
    replica sets
        For every workload the replica set with the fewest compute slices: the least that it needs, up to rounding.
    """
    compute, memory = (
        np.array([getattr(slice_type, what) for slice_type in segments.slice_types]) for what in ("compute", "memory")
    )
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    least = np.array([one.min_replicas for one in instance.workloads])
    most_rps = useful_rps * (1 + LOOSE)
    needed = [cheapest_replica_sets(most_rps, costs, rate, least) for costs in (compute, memory, compute + memory)]
    bounds = [
        _bound(instance, partitions, int(need.cost.sum()), costs)
        for need, costs in zip(needed, (compute, memory, compute + memory), strict=True)
    ]
    return max(bounds), needed[0]


def _bound(instance: Instance, partitions: Partitions, needed: int, costs: Ints) -> float:
    """The bound for one price vector: the price of all replica sets, divided by the most that a unit of the objective
    buys.
    """
    if not needed:
        return 0.0
    held = partitions.slots @ costs
    weights = [Fraction(objective_of(instance).weight(instance.fleet[entry])) for entry in partitions.entry]
    if len(set(weights)) == 1:
        return float(weights[0] * math.ceil(Fraction(needed, int(held.max()))))
    return math.nextafter(float(needed * min(w / int(h) for w, h in zip(weights, held, strict=True))), 0)

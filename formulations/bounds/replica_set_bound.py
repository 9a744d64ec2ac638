"""A proven lower bound from cheapest replica sets, in whole numbers, computed within milliseconds.

Every slice type gets a price, a small whole number. A plan's slices for a workload cost at least as much as the
workload's cheapest replica set (`provision.formulations.pricing.alone.replica_sets`), and a GPU's slices cost at most
as much as its dearest partition. The sum over all cheapest replica sets, divided by the price of the dearest
partition, is therefore a lower bound on the number of GPUs. (This is linear programming duality with a given dual
solution; all rounding is safe.) Three price vectors are tried: by compute slices, by memory slices and by both.
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
    """Lower bound on the objective, and the cheapest replica sets by compute slices.

    Parameters
    ----------
    instance
        The problem.
    useful_rps
        (workloads, slice types) throughput of a segment, at most what may be routed to one GPU, in requests/s.
    segments, partitions
        The problem's segments and partitions.

    Returns
    -------
    bound
        A bound on every plan of isolated segments.
    replica sets
        The cheapest replica sets by compute slices: what each workload needs at least, up to rounding.
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
    """The bound for one price vector: the prices of all replica sets over the most that a unit of the objective buys.
    """
    if not needed:
        return 0.0
    held = partitions.slots @ costs
    weights = [Fraction(objective_of(instance).weight(instance.fleet[entry])) for entry in partitions.entry]
    if len(set(weights)) == 1:
        return float(weights[0] * math.ceil(Fraction(needed, int(held.max()))))
    return math.nextafter(float(needed * min(w / int(h) for w, h in zip(weights, held, strict=True))), 0)

"""A proven lower bound from cheapest replica sets, in whole numbers, computed within milliseconds.

Every slice type gets a price, a small whole number (`provision.formulations.pricing.alone.price_bound`). Three price
vectors are tried: compute slices, memory slices, and the sum of both.
"""

import numpy as np

from provision.formulations.pricing.alone.price_bound import price_bound
from provision.formulations.pricing.alone.replica_sets import SegmentSets, cheapest_replica_sets
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import LOOSE
from provision.models.problem.instance import Instance


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
        price_bound(instance, partitions, int(need.cost.sum()), costs)
        for need, costs in zip(needed, (compute, memory, compute + memory), strict=True)
    ]
    return max(bounds), needed[0]

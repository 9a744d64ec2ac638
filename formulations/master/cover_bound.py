"""A proven lower bound from cheapest covers, in whole numbers, within milliseconds.

Price every kind of slice at a small whole number. No plan serves a workload with less than its cheapest cover
(`contents.alone.cover`), and no GPU holds more than its dearest partition. The sum of the first over the
largest of the second is a lower bound on the number of GPUs: linear programming duality, with the dual solution
given and nothing rounded the wrong way. Prices by compute slices, by memory slices and by both are tried.
"""

import math
from fractions import Fraction

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.contents.alone.cover import SegmentCovers, cheapest_cover
from provision.models.contents.alone.partitions import Partitions
from provision.models.contents.alone.segments import Segments
from provision.models.problem.instance import Instance

ROUNDING = 3e-9
"""Part of a rate that a plan may miss for the verifier, which grants 1e-9 on rates, throughputs and shares each."""


def cover_bound(
    instance: Instance, useful_rps: Floats, segments: Segments, partitions: Partitions
) -> tuple[float, SegmentCovers]:
    """Lower bound on the objective, and the cheapest covers by compute slices.

    Parameters
    ----------
    instance
        The problem.
    useful_rps
        (workloads, kinds) throughput of a segment, no more than may be routed to one GPU.
    segments, partitions
        Its tables.

    Returns
    -------
    bound
        Proven for every plan of isolated segments.
    cover
        The SegmentCovers by compute slices: what each workload needs at least, up to rounding.
    """
    compute, memory = (np.array([getattr(kind, what) for kind in segments.kinds]) for what in ("compute", "memory"))
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    least = np.array([one.min_replicas for one in instance.workloads])
    most_rps = useful_rps * (1 + ROUNDING)
    needed = [cheapest_cover(most_rps, costs, rate, least) for costs in (compute, memory, compute + memory)]
    bounds = [
        _bound(instance, partitions, int(need.cost.sum()), costs)
        for need, costs in zip(needed, (compute, memory, compute + memory), strict=True)
    ]
    return max(bounds), needed[0]


def _bound(instance: Instance, partitions: Partitions, needed: int, costs: Ints) -> float:
    """The bound for one price vector: what is needed against what a unit of the objective buys at most."""
    if not needed:
        return 0.0
    held = partitions.slots @ costs
    weights = [Fraction(instance.weight(instance.fleet[entry])) for entry in partitions.entry]
    if len(set(weights)) == 1:
        return float(weights[0] * math.ceil(Fraction(needed, int(held.max()))))
    return math.nextafter(float(needed * min(w / int(h) for w, h in zip(weights, held, strict=True))), 0)

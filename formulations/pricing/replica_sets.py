"""The cheapest replica sets at whole-number prices of slice types, and the bound that they prove.

The cheapest set of segments that carries a workload's rate is found exactly, for many workloads at once. This is an
unbounded covering knapsack with small integer costs. Let c be the cost of the best slice type, which has the most
throughput per cost. Among any c segments of other slice types, some together cost a multiple of c (pigeonhole
principle on partial sums). Segments of the best slice type for the same cost carry at least as much. So some cheapest
set has fewer than c segments of other slice types. Dynamic programming finds these, and a division gives the number of
segments of the best slice type.

The slices that a plan uses for a workload cost at least as much as the workload's cheapest replica set. The slices of a
GPU cost at most as much as the dearest partition. So the price of all cheapest replica sets, divided by the price of
the dearest partition, is a lower bound on the number of GPUs (linear programming duality). Prices are whole numbers, so
that all rounding is safe.
"""

import math
from fractions import Fraction

import numpy as np

from provision.formulations.search.fleet import Partitions
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import STRICT
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


@compiled
def cheapest_replica_sets(throughput_rps: Floats, costs: Ints, rate_rps: Floats, min_replicas: Ints) -> Ints:
    """(workloads, slice types) the numbers of segments in the cheapest replica set of each workload.

    Parameters
    ----------
    throughput_rps
        (workloads, slice types) requests/s of one segment; 0 where the slice type cannot serve the workload. Every
        workload needs at least one slice type that can.
    costs
        (slice types,) the cost of a segment; positive integers.
    rate_rps
        (workloads,) the rate to carry, in requests/s.
    min_replicas
        (workloads,) least number of segments.

    Returns
    -------
    numpy.ndarray
        Exact up to the tolerance ``STRICT``. Among equally cheap sets, those of the first slice types are preferred.
    """
    counts = np.zeros(throughput_rps.shape, np.int64)
    for row in range(len(rate_rps)):
        _add_set(throughput_rps[row], costs, rate_rps[row], min_replicas[row], counts[row])
    return counts


@inner
def _add_set(throughput_rps: Floats, costs: Ints, rate_rps: float, least: int, counts: Ints) -> None:
    """Add the cheapest set that carries a rate on at least ``least`` segments to ``counts`` (slice types,)."""
    best, dearest, alike = -1, 0, np.inf  # the best slice type, and the least cost of segments that are all alike
    for one in range(len(costs)):
        dearest = max(dearest, costs[one])
        if throughput_rps[one] > 0:
            if best < 0 or throughput_rps[one] / costs[one] > throughput_rps[best] / costs[best]:
                best = one
            alike = min(alike, max(np.ceil(rate_rps / throughput_rps[one]), least) * costs[one])
    reach = int(min(alike, dearest * (dearest - 1 + least)))
    # Of at least j segments at a total cost of at most g: the highest rate that they carry, and the slice type of the
    # segment that was added last, -1 if one unit of cost is left unused.
    carried, chosen = np.empty((least + 1, reach + 1)), np.empty((least + 1, reach + 1), np.int64)
    cheapest, spent = np.inf, 0
    for cost in range(reach + 1):
        for number in range(least + 1):
            carried[number, cost], chosen[number, cost] = 0.0 if number == 0 else -np.inf, -1
            if cost > 0:
                carried[number, cost] = carried[number, cost - 1]
            for one in range(len(costs)):
                if throughput_rps[one] > 0 and costs[one] <= cost:
                    reached = carried[max(number - 1, 0), cost - costs[one]] + throughput_rps[one]
                    if reached > carried[number, cost]:
                        carried[number, cost], chosen[number, cost] = reached, one
        missing = (rate_rps - carried[least, cost]) / throughput_rps[best]
        total = cost + costs[best] * max(np.ceil(missing - STRICT), 0.0)
        if total < cheapest:
            cheapest, spent, bulk = total, cost, (total - cost) / costs[best]
    counts[best] += int(bulk)
    number = least
    while spent > 0:
        one = chosen[number, spent]
        if one >= 0:
            counts[one] += 1
            number = max(number - 1, 0)
        spent -= costs[one] if one >= 0 else 1


def price_bound(instance: Instance, partitions: Partitions, needed: int, prices: Ints) -> float:
    """The bound that some prices prove.

    Parameters
    ----------
    instance, partitions
        The problem and its partitions.
    needed
        The price of the cheapest replica sets of all workloads together.
    prices
        (slice types,) the price of a slice; positive integers.
    """
    if not needed:
        return 0.0
    held = partitions.slots @ prices
    weights = [Fraction(objective_of(instance).weight(instance.fleet[entry])) for entry in partitions.entry]
    if len(set(weights)) == 1:
        return float(weights[0] * math.ceil(Fraction(needed, int(held.max()))))
    return math.nextafter(float(needed * min(w / int(h) for w, h in zip(weights, held, strict=True))), 0)


def sharpest(values: Floats, partitions: Partitions, most: int) -> Ints:
    """(slice types,) whole-number prices in the ratios of some dual values, the highest being at most ``most``.

    Rounding changes two things: prices of slices, in which replica sets are measured, and those of partitions, which
    the bound divides by. Of all scales that one is taken which keeps most of the bound that the dual values prove.

    Parameters
    ----------
    values
        (slice types,) the dual values; not negative.
    """
    if not values.any():
        return np.ones(len(values), int)
    prices = np.maximum(np.rint(np.arange(1, most + 1)[:, None] * (values / values.max())), 1)
    worth = np.zeros(partitions.entry.max() + 1)
    np.maximum.at(worth, partitions.entry, partitions.slots @ values)
    worth = worth[partitions.entry]
    least = (prices[:, values > 0] / values[values > 0]).min(axis=1)
    dearest = (prices @ partitions.slots.T / np.where(worth > 0, worth, np.inf)).max(axis=1)
    return prices[np.argmax(least / dearest)].astype(int)

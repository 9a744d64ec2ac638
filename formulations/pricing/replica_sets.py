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
from numpy.typing import NDArray

from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.search.segments import Partitions
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import STRICT
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


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
    counts = np.zeros(throughput_rps.shape, int)
    alike = _alike(throughput_rps, costs, rate_rps, min_replicas)
    for least in np.unique(min_replicas):
        most = np.minimum(alike, costs.max() * (costs.max() - 1 + least)).astype(int)
        left = np.flatnonzero(min_replicas == least)
        left = left[np.argsort(-most[left], kind="stable")]
        while len(left):
            reach = int(most[left[0]])
            size = max(1, SCHEDULE.cells // ((reach + 1) * (int(least) + 1)))
            rows, left = left[:size], left[size:]
            counts[rows] = _replica_set(throughput_rps[rows], costs, rate_rps[rows], int(least), reach)
    return counts


def _alike(throughput_rps: Floats, costs: Ints, rate_rps: Floats, min_replicas: Ints) -> Floats:
    """(workloads,) the cost of the cheapest set whose segments are all of the same slice type."""
    with np.errstate(divide="ignore", invalid="ignore"):
        number = np.where(throughput_rps > 0, np.ceil(rate_rps[:, None] / throughput_rps), np.inf)
    return (np.maximum(number, min_replicas[:, None]) * costs).min(axis=1)


def _replica_set(throughput_rps: Floats, costs: Ints, rate_rps: Floats, least: int, reach: int) -> Ints:
    """(workloads, slice types) counts of the cheapest sets that carry ``rate_rps`` on at least ``least`` segments; none
    costs more than ``reach``.
    """
    rows = np.arange(len(rate_rps))
    best = np.argmax(throughput_rps / costs, axis=1)
    carried, chosen = _table(throughput_rps, costs, least, reach)
    missing = (rate_rps - carried[least]) / throughput_rps[rows, best]
    bulk = np.maximum(np.ceil(missing - STRICT), 0)
    total = np.arange(reach + 1)[:, None] + costs[best] * bulk
    spent = np.argmin(total, axis=0)
    counts = _trace(chosen, costs, spent, least)
    counts[rows, best] += bulk[spent, rows].astype(int)
    return counts


def _table(throughput_rps: Floats, costs: Ints, least: int, reach: int) -> tuple[Floats, NDArray[np.int16]]:
    """Two arrays: the highest rate that at least j segments of a workload carry at a total cost of at most g, and the
    slice type of the segment that was added last.

    Both are indexed [j, g, workload], with j from 0 to ``least`` and g from 0 to ``reach``. The slice type -1 means
    that one unit of cost is left unused.
    """
    shape = (least + 1, reach + 1, len(throughput_rps))
    carried = np.full(shape, -np.inf)
    chosen = np.full(shape, -1, np.int16)
    carried[0, 0] = 0
    for spent in range(1, reach + 1):
        carried[:, spent] = carried[:, spent - 1]
        for slice_type in np.flatnonzero(costs <= spent):
            before = carried[:, spent - costs[slice_type]] + throughput_rps[:, slice_type]
            reached = np.concatenate([before[:1], before[:-1]])
            better = (reached > carried[:, spent]) & (throughput_rps[:, slice_type] > 0)
            carried[:, spent][better] = reached[better]
            chosen[:, spent][better] = slice_type
    return carried, chosen


def _trace(chosen: NDArray[np.int16], costs: Ints, spent: Ints, least: int) -> Ints:
    """(workloads, slice types) the numbers of segments that give each workload the rate in the table of ``_table`` at
    its cost ``spent``. They are found by going back from choice to choice.
    """
    rows = np.arange(len(spent))
    counts = np.zeros((len(spent), len(costs)), int)
    spent, needed = spent.copy(), np.full(len(spent), least)
    while (spent > 0).any():
        slice_type = chosen[needed, spent, rows]
        taken = slice_type >= 0  # not taken: one unit of cost is unused
        counts[rows[taken], slice_type[taken]] += 1
        spent = np.maximum(spent - np.where(taken, costs[slice_type], 1), 0)
        needed = np.where(taken, np.maximum(needed - 1, 0), needed)
    return counts


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

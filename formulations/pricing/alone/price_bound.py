"""A proven lower bound on the objective from whole-number prices of slice types (linear programming duality).

The slices that a plan uses for a workload cost at least as much as the workload's cheapest replica set. The slices of a
GPU cost at most as much as the dearest partition. So the price of all cheapest replica sets, divided by the price of
the dearest partition, is a lower bound on the number of GPUs. Prices are whole numbers, so that all rounding is safe.
"""

import math
from fractions import Fraction

import numpy as np

from provision.formulations.search.fleet import Partitions
from provision.models.base.arrays import Floats, Ints
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


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

"""The GPUs of a fleet, as the search sees them: the partitions of every fleet entry as one table, and pools.

A pool is the GPUs of one type, with their prices in exact whole numbers of one unit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


@dataclass(frozen=True)
class Partitions:
    """The undominated partitions of a fleet.

    ``entry`` (partitions,) is the fleet entry of each, and ``slots`` (partitions, slice types) its number of slices of
    each type.
    """

    entry: Ints
    slots: Ints


def partitions_of(instance: Instance, segments: Segments) -> Partitions:
    """The undominated partitions over the slice types of an instance's segments, in the order of fleet entries."""
    entries, rows = [], []
    for entry in range(len(instance.fleet)):
        slice_types = segments.of_entry(entry)
        geometry = segments.geometry(instance, entry)
        found = geometry.undominated_partitions if geometry else (((1,),) if slice_types else ())
        for counts in found:
            row = np.zeros(len(segments.slice_types), int)
            row[slice_types] = counts
            entries.append(entry)
            rows.append(row)
    return Partitions(np.array(entries, int), np.array(rows, int).reshape(len(rows), len(segments.slice_types)))


BEYOND = 10
"""A GPU that the fleet lacks costs this many times as much as a dearest GPU for every replica would."""
Tier = tuple[int, int | None]
"""A price in whole units, and the number of GPUs at that price; None for as many as needed."""


@dataclass(frozen=True)
class Pool:
    """The GPUs of one type, with their prices and partitions.

    Attributes
    ----------
    tiers, count
        The price tiers, cheapest first, and the number of GPUs that the fleet has (None for no limit). The last tier
        has no limit on its number. Its price is a price of the fleet or, if the fleet's GPUs are limited, that of GPUs
        that the fleet lacks.
    gpu, mig, entry, slice_types
        The type, the first fleet entry of it, and the indices of its slice types.
    partitions
        (partitions, all slice types) the number of slices of each type in each partition.
    """

    tiers: tuple[Tier, ...]
    count: int | None
    gpu: str
    mig: bool
    entry: int
    slice_types: tuple[int, ...]
    partitions: NDArray[np.int64]

    @property
    def offered(self) -> tuple[Tier, ...]:
        """The tiers of GPUs that the fleet has."""
        return self.tiers if self.count is None else self.tiers[:-1]

    @property
    def worth(self) -> int:
        """The price of the dearest GPU that the fleet has, at least 1 unit."""
        return max(1, *(price for price, _ in self.offered))

    def cost(self, many: int) -> int:
        """The price of ``many`` GPUs in units; the cheapest tiers are used first."""
        total = 0
        for price, count in self.tiers:
            taken = many if count is None else min(many, count)
            total, many = total + price * taken, many - taken
        return total


def prices_of(instance: Instance) -> tuple[Fraction, list[int]]:
    """The unit of which all prices of a fleet are whole multiples, and the price of each fleet entry in that unit."""
    weights = [Fraction(f"{objective_of(instance).weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(weight.numerator for weight in weights)) or 1,
                    math.lcm(*(weight.denominator for weight in weights)))
    return unit, [int(weight / unit) for weight in weights]


def pools_of(instance: Instance, segments: Segments, prices: Sequence[int], replicas: int) -> tuple[Pool, ...]:
    """The pools of a fleet. GPUs that have no slice for any workload are left out.

    Parameters
    ----------
    instance, segments
        The problem and its segments.
    prices
        (fleet entries,) prices in whole units. If an entry has no limit on its count, dearer ones of its type are left
        out.
    replicas
        The most replicas that are to be placed.
    """
    table = partitions_of(instance, segments)
    found: dict[tuple[str, bool], list[int]] = {}
    for index, entry in enumerate(instance.fleet):
        found.setdefault((entry.gpu, entry.partitioned), []).append(index)
    pools = []
    for (gpu, mig), entries in found.items():
        partitions = table.slots[table.entry == entries[0]]
        if len(partitions) and partitions.any():
            tiers = sorted(((prices[at], instance.fleet[at].count) for at in entries), key=lambda tier: tier[0])
            endless = [index for index, (_, count) in enumerate(tiers) if count is None]
            many = None if endless else sum(count or 0 for _, count in tiers)
            last = (BEYOND * replicas * (max(prices) or 1), None)
            tiers = tiers[: endless[0] + 1] if endless else [*tiers, last]
            slice_types = tuple(segments.of_entry(entries[0]))
            pools.append(Pool(tuple(tiers), many, gpu, mig, entries[0], slice_types, partitions))
    return tuple(pools)

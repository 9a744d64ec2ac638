"""Lists the GPUs of a fleet by type, with prices in whole units, and tells whether GPUs of a total price can satisfy
all cuts.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from provision.models.hardware.geometry import geometry
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry
from provision.proofs.lines import HardError

TRIES = 300_000
"""The most numbers of GPUs that are tried."""


class Pool(NamedTuple):
    """The GPUs of one type: their first fleet entry, their price tiers as pairs (price in units, count or None) in
    ascending order, and their partitions.
    """

    entry: FleetEntry
    tiers: list[tuple[int, int | None]]
    partitions: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """The GPU type, and whether it runs with MIG on."""
        return f"{self.entry.gpu}{' with MIG' if self.entry.partitioned else ''}"

    def bought(self, units: int, most: int) -> tuple[int, int]:
        """How many GPUs can be bought for ``units``, but at most ``most``; and what these cost, in units."""
        many, left = 0, units
        for price, count in self.tiers:
            taken = min(most - many, most if count is None else count, left // price if price else most)
            many, left = many + taken, left - taken * price
        return many, units - left


class Cut(NamedTuple):
    """Every plan has sum(most[t] * GPUs of type t) >= needed."""

    needed: int
    most: tuple[int, ...]


def pools_of(instance: Instance) -> tuple[Fraction, list[Pool]]:
    """The unit of price, of which all prices are whole multiples, and the pools of the fleet."""
    weights = [Fraction(f"{objective_of(instance).weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(one.numerator for one in weights)) or 1, math.lcm(*(one.denominator for one in weights)))
    pools: dict[tuple[str, bool], Pool] = {}
    for entry, weight in sorted(zip(instance.fleet, weights, strict=True), key=lambda one: one[1]):
        partitions = geometry(entry.type, entry.profiles).undominated_partitions if entry.partitioned else ((1,),)
        pool = pools.setdefault((entry.gpu, entry.partitioned), Pool(entry, [], partitions))
        pool.tiers.append((int(weight / unit), entry.count))
    return unit, list(pools.values())


def affordable(pools: Sequence[Pool], cuts: Sequence[Cut], units: int, tries: Iterator[int] | None = None) -> bool:
    """Whether some GPUs that together cost at most ``units`` satisfy all cuts.

    Parameters
    ----------
    pools, cuts
        The GPUs by type, and the cuts; ``most`` of each cut has one number for each pool.
    units
        The most that the GPUs may cost, in units of price.
    tries
        An iterator of which each number of GPUs that is tried takes one element. It limits the work of this call and of
        the calls in it together. By default it has TRIES elements.

    Raises
    ------
    HardError
        If ``tries`` has no element left before the answer is known.
    """
    tries = iter(range(TRIES)) if tries is None else tries
    cuts = [cut for cut in cuts if cut.needed > 0]
    if units < 0 or not cuts:
        return units >= 0
    for cut in cuts:  # all money where it buys most, in fractions of GPUs, must suffice
        rivals = zip(pools, cut.most, strict=True)
        if not any(most and most * units >= cut.needed * pool.tiers[0][0] for pool, most in rivals):
            return False
    pool, *others = pools
    enough = max(-(-cut.needed // cut.most[0]) if cut.most[0] else 0 for cut in cuts)
    many, cost = pool.bought(units, enough)
    while many >= 0:
        if next(tries, None) is None:
            raise HardError
        rest = [Cut(cut.needed - many * cut.most[0], cut.most[1:]) for cut in cuts]
        if affordable(others, rest, units - cost, tries):
            return True
        many, cost = pool.bought(units, many - 1) if others and many else (-1, 0)
    return False

"""The rates that replicas can carry together on a slice, by levels of sharing: tables, and knapsacks over them.

A *level* is a number of replicas, or of processes, that share the slice. It bounds how much they slow each other down.
For each level and each size of replica (units of a GPU, or processes), a table bounds the rate that the replica
carries. The best pattern of a level is then a knapsack over sizes. The highest value over all levels bounds every
pattern.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    MOST_RATED,
    TRIED,
    GroupPrices,
    Member,
    Members,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.sm_shares import share_of_units

TIME_PARTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""The prices of a slice's time that are tried, as fractions of the highest value that all its time may have."""
MOVED = (1, 3, 8)
"""To find neighbouring patterns, these numbers of units are moved from one replica to another."""
STEPS = (1, 3)
"""To find neighbouring patterns, a batch is replaced by batches this many positions away in the list of batches."""
SLIGHT = 1e-9
"""A gain up to this is a rounding error."""


class Table(NamedTuple):
    """Upper bounds on the rates of replicas, by level, group and size.

    ``rps`` (levels, groups, sizes from 1) is the highest requests/s of a replica; ``model`` and ``batch`` are the model
    and the batch with which the replica carries it. ``number`` and ``units`` (levels,) are the most replicas of a
    pattern and the most units of all its replicas together. A unit is the fraction ``share`` of the slice's SMs; if
    ``share`` is 0, it is a process. ``full_rps`` (groups,) is the rate that a slice carries if it gives all its time to
    one group; it bounds every pattern.
    """

    rps: Floats
    model: Ints
    batch: Ints
    number: Ints
    units: Ints
    share: float
    full_rps: Floats


class LevelCapacities(RateOracle):
    """An oracle that prices patterns by tables over levels.

    Parameters
    ----------
    table
        Upper bounds on the rates of replicas in every pattern.
    likely
        Rates beside typical neighbours. Further patterns are made from them; None if there are none.
    batches
        The batch sizes of the data, ascending.
    """

    def __init__(self, table: Table, likely: Table | None, batches: Sequence[int]) -> None:
        self.table, self.likely, self.batches = table, likely, batches

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        full = np.max(prices.per_rps * self.table.full_rps, initial=0.0)
        parts = TIME_PARTS if np.isfinite(full) else (0.0,)
        tried = [_filled(self.table, prices, part * full if part else 0.0) for part in parts]
        most, rated_patterns = min(tried, key=lambda one: one[0])
        likely = rated_patterns if self.likely is None else [*rated_patterns[:2], *_filled(self.likely, prices, 0.0)[1]]
        patterns = [_in_time(self.table, one) for one in rated_patterns[:MOST_RATED]]
        return PricedRates(most, listing_of(patterns, len(prices.per_rps)), [one.members for one in likely])

    def near(self, members: Members) -> list[Members]:
        """See ``RateOracle.near``."""
        table = self.likely or self.table
        units = [round(one.run.sm_share / table.share) if table.share else one.run.processes for one in members]
        enough = np.flatnonzero(table.number >= len(members))
        level = int(enough[0]) if table.share else int(np.searchsorted(table.units, sum(units)))
        sizes = [{giver: (members[giver].group, has - moved), taker: (members[taker].group, other + moved)}
                 for (giver, has), (taker, other) in permutations(enumerate(units), 2)
                 for moved in (*(step for step in MOVED if step < has), has) if other + moved <= table.rps.shape[2]]
        for (at, size), group in product(enumerate(units), range(table.rps.shape[1])):
            sizes += [{at: (group, size)}] * (group != members[at].group)
            sizes += [{at: (members[at].group, size - moved), len(units): (group, moved)} for moved in MOVED
                      if moved < size and len(units) < table.number.max()]
        found = [_resized(table, level, members, one) for one in sizes]
        return [*(one for one in found if one), *self._with_batches(members)]

    def _with_batches(self, members: Members) -> Iterator[Members]:
        """Yield the patterns in which the batch of one replica is replaced by one that is some STEPS larger or smaller.
        """
        for at, one in enumerate(members):
            place = int(np.searchsorted(self.batches, one.run.batch))
            for step in (place + sign * further for further in STEPS for sign in (-1, 1)):
                if 0 <= step < len(self.batches):
                    changed = one._replace(run=one.run._replace(batch=int(self.batches[step])))
                    yield (*members[:at], changed, *members[at + 1:])


def _resized(table: Table, level: int, members: Members, sizes: dict[int, tuple[int, int]]) -> Members | None:
    """A copy of a pattern in which the (group, size) in ``sizes`` replace those at some positions.

    Size 0 removes a replica, and a position at the end adds one. Returns None if a replica cannot run with its size.
    """
    if any(size and not table.rps[level, group, size - 1] for group, size in sizes.values()):
        return None
    resized = {at: _member(table, (level, group, size - 1)) for at, (group, size) in sizes.items() if size}
    kept = {at: one for at, one in enumerate(members) if at not in sizes}
    return tuple(one for _, one in sorted((kept | resized).items()))


def _member(table: Table, at: tuple[int, int, int]) -> Member:
    """The replica that an entry (level, group, size - 1) of a table stands for."""
    share, processes = (share_of_units(table.share, at[2] + 1), 1) if table.share else (1.0, at[2] + 1)
    return Member(at[1], Running(int(table.model[at]), int(table.batch[at]), processes, share))


def _filled(table: Table, prices: GroupPrices, time: float) -> tuple[float, list[RatedPattern]]:
    """An upper bound on the value of any pattern at a price of the slice's time, and the patterns of the best levels.
    """
    each = _gained(table, prices, time)
    group, best = each.argmax(axis=1), each.max(axis=1)
    number, units = int(table.number.max(initial=0)), int(table.units.max(initial=0))
    totals, taken = _knapsacks(best, number, units) if (table.number < table.units).any() else _by_units(best, units)
    levels = np.arange(len(best))
    most = totals[np.minimum(table.number, len(totals) - 1), levels, table.units]
    chosen = np.argsort(-most, kind="stable")[:TRIED]
    found = [_rated(table, level, group[level], taken[:, level]) for level in chosen.tolist() if most[level] > 0]
    return float(most.max(initial=0.0)) + time, list(dict.fromkeys(found))


def _in_time(table: Table, rated: RatedPattern) -> RatedPattern:
    """A rated pattern. If its replicas need more than the slice's time, all rates are scaled down."""
    taken = sum(rps / float(table.full_rps[one.group]) for one, rps in zip(*rated, strict=True))
    return rated if taken <= 1 else rated._replace(rps=tuple(rps / taken for rps in rated.rps))


def _gained(table: Table, prices: GroupPrices, time: float) -> Floats:
    """(levels, groups, sizes) the value of a replica at its best rate, less the price of the time that it takes.

    The best rate may be below what the replica can carry, or 0, where the time costs more than the rate is worth.
    """
    columns = (slice(None), None)
    capped = np.minimum(table.rps, prices.cap_rps[columns])
    beyond = table.rps - capped
    price = (time / table.full_rps)[columns]
    extra = np.maximum(prices.per_rps[columns] - price, 0.0) * capped + np.maximum(1 - price, 0.0) * beyond
    return np.where(table.rps > 0, extra + prices.bonus[columns], -np.inf)


def _rated(table: Table, level: int, group: Ints, taken: Ints) -> RatedPattern:
    """The rated pattern whose value is that of the knapsack at a level."""
    found, rps = [], []
    number, units = min(int(table.number[level]), len(taken) - 1), int(table.units[level])
    while number and units:
        size = int(taken[number, units])
        if size:
            at = (level, int(group[size - 1]), size - 1)
            found.append(_member(table, at))
            rps.append(float(table.rps[at]))
            units -= size
        number -= 1 if len(taken) > 2 or not size else 0
    return RatedPattern(tuple(found), tuple(rps))


def _knapsacks(values: Floats, number: int, units: int) -> tuple[Floats, Ints]:
    """Two arrays (replicas, levels, units): the highest value of a pattern with at most these numbers of replicas and
    units, and the size of the replica that was added last (0 for none).
    """
    levels, sizes = values.shape
    total, taken = np.zeros((number + 1, levels, units + 1)), np.zeros((number + 1, levels, units + 1), int)
    for count in range(1, number + 1):
        total[count] = total[count - 1]
        for size in range(1, min(sizes, units) + 1):
            gained = total[count - 1][:, : units + 1 - size] + values[:, [size - 1]]
            better = gained > total[count][:, size:] + SLIGHT
            total[count][:, size:][better] = gained[better]
            taken[count][:, size:][better] = size
        if not taken[count].any():
            return total[: count + 1], taken[: count + 1]
    return total, taken


def _by_units(values: Floats, units: int) -> tuple[Floats, Ints]:
    """Like ``_knapsacks``, but without a limit on the number of replicas. Both arrays are (2, levels, units); the first
    of their two tables is not used.
    """
    levels, sizes = values.shape
    total, taken = np.zeros((2, levels, units + 1)), np.zeros((2, levels, units + 1), int)
    for used in range(1, units + 1):
        sizes_here = np.arange(1, min(sizes, used) + 1)
        added = total[1][:, used - sizes_here] + values[:, : len(sizes_here)]
        gained = np.concatenate([total[1][:, [used - 1]], added], axis=1)
        taken[1][:, used], total[1][:, used] = gained.argmax(axis=1), gained.max(axis=1)
    return total, taken


class Best:
    """Collects the highest rate of a replica of each size, with its model and batch, from all that are offered. Arrays
    are (levels, groups, sizes).
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.rps, self.model, self.batch = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, int)

    def same(self, group: int, other: int) -> None:
        """Copy the entries of group ``other`` to ``group``."""
        for field in (self.rps, self.model, self.batch):
            field[:, group] = field[:, other]

    def offer(self, level: int, group: int, model: int, rps: Floats, batch: Ints) -> None:
        """Offer the rates of a model at a level: ``rps`` is (sizes, batches), ``batch`` (batches,)."""
        best, most = rps.argmax(axis=1), rps.max(axis=1)
        better = most > self.rps[level, group, : len(most)]
        at = level, group, np.flatnonzero(better)
        self.rps[at], self.model[at], self.batch[at] = most[better], model, batch[best[better]]

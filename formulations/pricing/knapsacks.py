"""Knapsacks by levels: the most valuable pattern within two resources, at each of many levels.

A level fixes how replicas affect each other: a slowdown, or the length of a duty cycle. At a level, a replica of a role
takes fixed amounts of two resources: utilisation, and processes or units. Some levels limit only one of them. A *way*
is one way to run a replica of a role, with its amounts at every level.

Memory is a third resource, which is charged at a price per GiB. At any price, the value of a pattern that fits is at
most the gain of the knapsack (values less the price of the memory taken) plus the price of all memory (Lagrangian
relaxation).
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.oracle import Pattern, Priced
from provision.formulations.pricing.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import SINGLE

ENDLESS = -1
"""Stands for a number of copies that sets no limit."""


class Levels(NamedTuple):
    """The ways in which a replica of each role can run at each level, and the resources that they take.

    Attributes
    ----------
    start
        (roles + 1,) the ways of role r are those from ``start[r]`` up to ``start[r + 1]``.
    first, second
        (levels, ways) whole units of the two resources that a way takes. Where a way is not allowed, ``first`` is -1.
    memory_gib
        (levels, ways) the memory of a way, in GiB.
    room
        (levels,) the units of the first resource that the slice has.
    units
        The units of the second resource that the slice has at every level.
    """

    start: NDArray[np.int64]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    memory_gib: NDArray[np.float32]
    room: NDArray[np.int64]
    units: int


class KnapsackOracle(ABC):
    """What the pattern oracles have in common that price by knapsacks. Memory is charged at rising prices until the
    best patterns fit.

    Attributes
    ----------
    copies, memory_gib
        (roles,) the most replicas of each role in a pattern, and the memory of the slice.
    able
        (roles,) whether patterns for plans may have the role.
    planned, bounded
        Knapsacks for plans, which are coarse and quick, and for bounds.
    """

    copies: Ints
    memory_gib: float
    able: NDArray[np.bool_]
    planned: Any
    bounded: Any

    @abstractmethod
    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the slice can serve."""

    @abstractmethod
    def _ranked(self, knapsacks: Any, values: Ints, copies: Ints, gib_price: float, near: float
                ) -> list[tuple[int, Any]]:
        """Pairs (gain, place), highest gain first (see `worth_of`). ``_taken`` finds the pattern of a place, which is a
        level, or a level for each part of the slice.
        """

    @abstractmethod
    def _taken(self, knapsacks: Any, place: Any, values: Ints, copies: Ints, gib_price: float) -> tuple[Pattern, bool]:
        """A pattern of the highest gain at a place, and whether a slice can hold it."""

    def price(self, values: Ints, floor: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        found = self._patterns(np.where(self.able, values, 0), self.copies, floor)
        alone = values[[role for (role,) in self.seeds()]]
        worth = max([int(alone.max(initial=0)), *(int(values[list(pattern)].sum()) for pattern in found)])
        return Priced(found, max(self._most(values, floor), worth))

    def _patterns(self, values: Ints, copies: Ints, floor: int) -> list[Pattern]:
        """The patterns of the highest values. If some of them do not fit, the search is repeated with a higher price of
        memory.
        """
        found: dict[Pattern, None] = {}
        highest = 0
        for part in (0.0, *SCHEDULE.parts):
            gib_price, fitting = part * highest / self.memory_gib, True
            ranked = self._ranked(self.planned, values, copies, gib_price, SCHEDULE.promising)
            highest = highest or (ranked[0][0] if ranked else 0)
            for gain, place in ranked[:SCHEDULE.found]:
                if gain <= (0 if part else floor):
                    break
                pattern, fits = self._taken(self.planned, place, values, copies, gib_price)
                fitting &= fits
                if fits and values[list(pattern)].sum() > floor:
                    found[pattern] = None
            if fitting:
                break
        return list(found)

    def _most(self, values: Ints, floor: int) -> int:
        """An upper bound on the value of any pattern. Memory has prices only if the best pattern does not fit."""
        ranked = self._ranked(self.bounded, values, self.copies, 0.0, 1.0)
        if not ranked:
            return 0
        least, place = ranked[0]
        if least <= floor or self._taken(self.bounded, place, values, self.copies, 0.0)[1]:
            return least
        for part in SCHEDULE.parts:
            gib_price = part * least / self.memory_gib
            all_gib = int(np.ceil(gib_price * self.memory_gib * (1 + SINGLE)))
            ranked = self._ranked(self.bounded, values, self.copies, gib_price, 1.0)
            least = min(least, (ranked[0][0] if ranked else 0) + all_gib)
        return least


def worth_of(levels: Levels, values: Ints, copies: Ints, gib_price: float, near: float, several: int) -> Ints:
    """(levels,) the highest gain of a pattern: the values of its roles less the price of its memory. A level at which
    this gain cannot be near the best is skipped and has 0.

    Parameters
    ----------
    levels
        The ways to run replicas at each level.
    values, copies
        (roles,) the whole-number value of each role, and how often it may be taken.
    gib_price
        The price of a GiB of memory, in the unit of the values.
    near
        A level is skipped if a quick bound on its gain is at most this fraction of the best gain found.
    several
        The number of consecutive levels of which the best is sought; those with the highest quick bounds come first.
    """
    gains, found = _gains(levels, values, gib_price, slice(None)), np.zeros(len(levels.room), int)
    estimates = _estimates(levels, gains, copies)
    order = np.lexsort([-estimates, np.arange(len(found)) // several])
    _fill_levels(levels, gains, copies, order, estimates, near, several, found)
    return found


def pattern_at(levels: Levels, level: int, values: Ints, copies: Ints, gib_price: float) -> Ints:
    """A pattern of the highest gain at one level (by index): the index of a way for each of its replicas. The other
    arguments are as in `worth_of`.
    """
    found: Ints = _traced(levels, level, _gains(levels, values, gib_price, level), copies)
    return found


def _gains(levels: Levels, values: Ints, gib_price: float, level: int | slice) -> Ints:
    """(ways,) of a level, or (levels, ways) of several: the value of each way less the price of its memory; 0 for ways
    that are not allowed.
    """
    paid = np.floor(gib_price * levels.memory_gib[level].astype(float)).astype(int)
    return np.where(levels.first[level] >= 0, np.repeat(values, np.diff(levels.start)) - paid, 0)


def _estimates(levels: Levels, gains: Ints, copies: Ints) -> Floats:
    """(levels,) upper bounds on the gains: the least of three fractional knapsacks. They limit only the first resource,
    only the second, and the mean of both.
    """
    roles = np.flatnonzero(np.diff(levels.start))
    if not len(roles):
        return np.zeros(len(gains))
    start, copies = levels.start[roles], copies[roles]
    one, other = levels.first / np.maximum(levels.room, 1)[:, None], levels.second / levels.units
    gain = np.maximum(np.maximum.reduceat(gains, start, axis=1), 0)
    least = np.full(len(gains), np.inf)
    for weight in (0.0, 0.5, 1.0):
        taken = np.where(gains > 0, weight * one + (1 - weight) * other, np.inf)
        size = np.where(gain > 0, np.minimum.reduceat(taken, start, axis=1), 0.0)
        order = np.argsort(-gain / np.maximum(size, 1e-12), axis=1)
        each, number = np.take_along_axis(size, order, axis=1), copies[order]
        left = np.ones_like(each)
        left[:, 1:] -= np.cumsum(number * each, axis=1)[:, :-1]
        fitting = np.where(each > 0, np.clip(left / np.where(each > 0, each, 1), 0, number), number)
        least = np.minimum(least, (fitting * np.take_along_axis(gain, order, axis=1)).sum(axis=1))
    return least * (1 + 1e-9)


@compiled
def _fill_levels(levels: Levels, gains: Ints, copies: Ints, order: Ints, estimates: Floats, near: float, several: int,
                 found: Ints) -> None:
    """Fill the knapsacks of levels in an order; ``found`` (levels,) gets their gains."""
    none, best = np.zeros((0, 0, 0), np.int16), 0
    for at in range(len(order)):
        level = order[at]
        best = best if at % several else 0
        if estimates[level] > near * best:
            table = np.zeros((levels.room[level] + 1, levels.units + 1), np.int64)
            _fill(levels, level, gains[level], _passes(levels, level, gains[level], copies), table, none)
            found[level] = table[-1, -1]
            best = max(best, found[level])


@compiled
def _traced(levels: Levels, level: int, gains: Ints, copies: Ints) -> Ints:
    """The ways of a pattern of the highest gain at a level: the table of a knapsack is filled, and its best pattern
    traced back.
    """
    table = np.zeros((levels.room[level] + 1, levels.units + 1), np.int64)
    passes = _passes(levels, level, gains, copies)
    rows = 0
    for many in passes:
        rows += abs(many)
    chosen = np.zeros((rows, levels.room[level] + 1, levels.units + 1), np.int16)
    _fill(levels, level, gains, passes, table, chosen)
    found, many = np.zeros(rows + levels.room[level] + levels.units, np.int64), 0
    row, one, other = rows - 1, levels.room[level], levels.units
    for role in range(len(levels.start) - 2, -1, -1):
        for _ in range(abs(passes[role])):
            while chosen[row, one, other] > 0:
                way = levels.start[role] + chosen[row, one, other] - 1
                found[many], many = way, many + 1
                one, other = one - levels.first[level, way], other - levels.second[level, way]
                if passes[role] != ENDLESS:
                    break
            row -= 1
    return found[:many]


@inner
def _passes(levels: Levels, level: int, gains: Ints, copies: Ints) -> Ints:
    """(roles,) how often the table is passed for a role: once for every copy, 0 times if the role gains nothing. The
    number is ENDLESS if the resources are used up before the copies are; one pass then takes any number of replicas.
    """
    found, room = np.zeros(len(copies), np.int64), max(levels.room[level], 1)
    for role in range(len(found)):
        for way in range(levels.start[role], levels.start[role + 1]):
            if gains[way] > 0 and found[role] <= 0:
                part = max(levels.first[level, way] / room, levels.second[level, way] / levels.units)
                found[role] = copies[role] if copies[role] * part < 1 else ENDLESS
    return found


@inner
def _fill(levels: Levels, level: int, gains: Ints, passes: Ints, table: Ints, chosen: NDArray[np.int16]) -> None:
    """Fill ``table`` with the highest gain within each amount of both resources, and ``chosen`` with the ways taken.

    ``chosen`` (passes, first + 1, second + 1) is the way that a pass took, counted within its role from 1; 0 if it took
    none.
    """
    row = np.int64(0)
    for role in range(len(passes)):
        begin, end = levels.start[role], levels.start[role + 1]
        for _ in range(abs(passes[role])):
            before = table if passes[role] == ENDLESS else table.copy()
            for way in range(begin, end):
                one, other = levels.first[level, way], levels.second[level, way]
                if gains[way] > 0 and one < table.shape[0] and other < table.shape[1]:
                    _take(before, table, one, other, gains[way], chosen, row, way - begin + 1)
            row += 1


@inner
def _take(
    before: Ints, table: Ints, one: int, other: int, gain: int, chosen: NDArray[np.int16], row: int, number: int
) -> None:
    """Add one more replica of a way wherever that raises the gain. If ``before`` is ``table``, add as many as fit."""
    for at in range(one, table.shape[0]):
        for to in range(other, table.shape[1]):
            gained = before[at - one, to - other] + gain
            if gained > table[at, to]:
                table[at, to] = gained
                if len(chosen):
                    chosen[row, at, to] = number

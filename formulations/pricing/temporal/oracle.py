"""The pattern oracle of gpu-lets (ATC 2022): a GPU has one or two parts, and replicas take turns on each.

A replica runs one batch per duty cycle, whatever rate is routed to it, so the rate of a role is a capacity. Each part
is priced as a knapsack at levels of cycle length and pressure. The best pattern is the best pair of parts whose
pressures match. Patterns are not enumerated, so the time hardly grows with the replicas on a part. For bounds, levels
are intervals of cycle and pressure.

Methods decide the loads of the parts of every GPU, with the smallest batches that carry the rates. Plans have the
largest feasible ones (ATC 2022, Algorithm 1, line 27): a server takes the requests that wait, up to its batch size. So
a larger size costs nothing while few requests wait, and it shortens the queue sooner after a burst.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import KnapsackOracle, Levels, pattern_at, worth_of
from provision.formulations.pricing.oracle import Pattern, Running, WayOfSharing
from provision.formulations.pricing.temporal.levels import UNDISTURBED, UNLIMITED, Grid, levels_of, pressures_of
from provision.formulations.pricing.temporal.listing import turns_patterns
from provision.formulations.pricing.temporal.tables import ALONE, Part, TurnTables
from provision.formulations.search.roles import Role
from provision.models.base.arrays import Floats, Ints
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

Batches = Sequence[Sequence[int]]
"""For each part of a GPU, the batch sizes of its replicas as indices into ``TurnTables.batches``."""
PLANNED, BOUNDED = Grid(48, 1.12, 3), Grid(120, 1.05, 5)
"""How fine levels are for plans, and for bounds."""

Parts = tuple[tuple[int, tuple[int, ...]], ...]
"""The parts of a GPU: for each the index of its share, and rows (a role with one of its models) that take turns there.
"""


def largest_batches(tables: TurnTables, parts: Sequence[Part]) -> Batches:
    """The largest batches for the parts of one GPU: none of them alone could be one size larger.

    The search starts from the smallest batches. Again and again, the replica whose batch is fullest at its rate gets
    the next size, as long as every SLO and rate is kept.

    Parameters
    ----------
    tables, parts
        As for TurnTables.settle, which must find batches.
    """
    settled = tables.settle(parts)
    assert settled is not None, "the parts hold"
    batches: Batches = settled
    while grown := next((sizes for sizes in _grown(tables, parts, batches) if _holds(tables, parts, sizes)), None):
        batches = grown
    return batches


def _grown(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> Iterator[Batches]:
    """Yield copies of ``batches`` in each of which one replica has the next larger batch size. The copy for the replica
    with the fullest batches comes first, the copy for the least full last.
    """
    full = [
        (load_rps * busy_ms.sum() / tables.batches[size], part, at)
        for part, ((_, load), busy_ms) in enumerate(zip(parts, _busy(tables, parts, batches), strict=True))
        for at, ((_, load_rps), size) in enumerate(zip(load, batches[part], strict=True))
    ]
    for _, part, at in sorted(full, reverse=True):
        sizes = [list(one) for one in batches]
        sizes[part][at] += 1
        if sizes[part][at] < len(tables.batches):
            yield sizes


def _holds(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> bool:
    """Whether every replica keeps its latency at its rate with these batches."""
    for (_, load), sizes, busy_ms in zip(parts, batches, _busy(tables, parts, batches), strict=True):
        who, rates = np.array([one for one, _ in load]), np.array([rate for _, rate in load])
        if (busy_ms.sum() > tables.room_ms(who, rates, np.array(sizes), busy_ms, len(load) > 1)).any():
            return False
    return True


def _busy(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> list[Floats]:
    """The execution times (ms) of the replicas of every part, beside the other part."""
    felt = [tables.felt(share, load, sizes) for (share, load), sizes in zip(parts, batches, strict=True)]
    received = felt[::-1] if len(parts) > 1 else [ALONE]
    return [
        tables.beside(share, pressure)[[one for one, _ in load], sizes]
        for (share, load), sizes, pressure in zip(parts, batches, received, strict=True)
    ]


class _Side(NamedTuple):
    """One part of a GPU: its share, its levels, and ``shape``, the number of ranges of the pressure that it receives
    and of the pressure that it exerts.
    """

    share: int
    levels: Levels
    shape: tuple[int, int]


Place = list[tuple[_Side, int]]
"""The parts of a GPU, each with a level (by index)."""


class TurnsOracle(KnapsackOracle):
    """The patterns of whole GPUs of one type on which replicas take turns.

    Parameters
    ----------
    instance, data
        The problem, and gpu-lets' data of the GPU type.
    roles
        All roles.
    copies
        (roles,) the most replicas of each role on a part.
    clients
        The most replicas on a GPU.
    """

    def __init__(self, instance: Instance, data: Gpulets, roles: Sequence[Role], copies: NDArray[np.int64],
                 clients: int) -> None:
        rows = [(at, number, name) for at, role in enumerate(roles) for number, name in enumerate(role.models)
                if name in data.models]
        self.role = np.array([at for at, _, _ in rows], int)
        self.model = np.array([number for _, number, _ in rows], int)
        self.start = np.searchsorted(self.role, np.arange(len(roles) + 1))
        self.tables = TurnTables(data, [name for _, _, name in rows],
                                 np.array([roles[at].slo_ms * instance.policy.part_of_slo for at in self.role]),
                                 np.array([roles[at].rate_rps for at in self.role]), instance.shared_rule)
        self.copies, self.clients = np.minimum(copies, clients), clients
        self.memory_gib, self.able = self.tables.gpu.slice_memory_gib(WHOLE), np.ones(len(roles), bool)
        self.planned = _splits(self.tables, self.start, PLANNED, relaxed=False)
        self.bounded = _splits(self.tables, self.start, BOUNDED, relaxed=True)
        self.known: dict[Pattern, Parts | None] = {}

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        for row, role in enumerate(self.role.tolist()):
            parts = ((self.tables.whole, (row,)),)
            if self.known.get((role,)) is None:
                self.known[(role,)] = parts if self._settles(parts) else None
        return [pattern for pattern, parts in self.known.items() if len(pattern) == 1 and parts]

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas, with the largest feasible batches; None if none are found."""
        if pattern not in self.known:
            counts = np.bincount(pattern, minlength=len(self.copies))
            found = self._patterns((counts > 0).astype(np.int64), counts, len(pattern) - 1)
            within = (self._within(other, counts) for other in found)
            self.known.setdefault(pattern, next((parts for parts in within if parts is not None), None))
        parts = self.known[pattern]
        return None if parts is None else self._run(pattern, parts)

    def _within(self, pattern: Pattern, counts: NDArray[np.int64]) -> Parts | None:
        """The parts of a known pattern with only ``counts`` replicas of each role; None if that is impossible.

        The two parts of a GPU are searched at once, and each may take as many replicas as are asked for in all. So the
        known pattern may have more replicas than needed.
        """
        left, kept = counts.copy(), []
        for share, rows in self.known[pattern] or ():
            here = []
            for row in rows:
                if left[self.role[row]]:
                    left[self.role[row]] -= 1
                    here.append(row)
            if here:
                kept.append((share, tuple(here)))
        return tuple(kept) if not left.any() and self._settles(tuple(kept)) else None

    def _run(self, pattern: Pattern, parts: Parts) -> list[Running]:
        """The operating points of the replicas on the parts of a GPU, in the order of the pattern's roles."""
        runs: dict[int, list[Running]] = {}
        for turn, ((share, rows), batches) in enumerate(
                zip(parts, largest_batches(self.tables, self._loads(parts)), strict=True)):
            for row, size in zip(rows, batches, strict=True):
                run = Running(int(self.model[row]), int(self.tables.batches[size]), 1, self.tables.shares[share],
                              turn if len(rows) > 1 else None)
                runs.setdefault(int(self.role[row]), []).append(run)
        return [runs[role].pop() for role in pattern]

    def _loads(self, parts: Parts) -> list[tuple[int, tuple[tuple[int, float], ...]]]:
        """Parts in the form that the tables take: (share, load), where a load has the rates of the replicas."""
        return [(share, tuple((row, float(self.tables.rates[row])) for row in rows)) for share, rows in parts]

    def _settles(self, parts: Parts) -> bool:
        """Whether some batches keep every SLO and rate, and the replicas are within the GPU's memory and clients."""
        number = sum(len(rows) for _, rows in parts)
        return number <= self.clients and self.tables.settle(self._loads(parts)) is not None

    def _ranked(self, knapsacks: list[list[_Side]], values: Ints, copies: Ints, gib_price: float, near: float
                ) -> list[tuple[int, Place]]:
        """The levels of the parts with the highest total gains."""
        pairs = [pair for sides in knapsacks for pair in self._pairs(sides, values, copies, gib_price)]
        return sorted(pairs, key=lambda pair: -pair[0])

    def _taken(self, knapsacks: list[list[_Side]], place: Place, values: Ints, copies: Ints, gib_price: float
               ) -> tuple[Pattern, bool]:
        """A pattern of the highest gain at the levels of the parts, and whether it holds; if so, its parts are kept."""
        ways = [(side.share, pattern_at(side.levels, level, values, copies, gib_price).tolist())
                for side, level in place]
        parts = tuple((share, tuple(rows)) for share, rows in ways if rows)
        pattern = tuple(sorted(int(self.role[row]) for _, rows in parts for row in rows))
        holds = self._settles(parts)
        if holds:
            self.known[pattern] = self.known.get(pattern) or parts
        return pattern, holds

    def _pairs(self, sides: list[_Side], values: NDArray[np.int64], copies: NDArray[np.int64], gib_price: float
               ) -> Iterator[tuple[int, Place]]:
        """Yield, for every combination of the pressures between the parts of a split, their highest total gain, and the
        parts, each with the level at which they have this gain.
        """
        gained, levels = [], []
        for side in sides:
            several = len(side.levels.room) // (side.shape[0] * side.shape[1])
            most = worth_of(side.levels, values, copies, gib_price, 1.0, several).reshape(*side.shape, -1)
            gained.append(most.max(axis=2))
            first = np.arange(side.shape[0] * side.shape[1]).reshape(side.shape) * most.shape[2]
            levels.append(first + most.argmax(axis=2))
        for at in np.ndindex(*sides[0].shape):
            places = (at, at[::-1])[: len(sides)]
            yield (sum(int(one[place]) for one, place in zip(gained, places, strict=True)),
                   [(side, int(one[place])) for side, one, place in zip(sides, levels, places, strict=True)])


def _splits(tables: TurnTables, start: NDArray[np.int64], grid: Grid, relaxed: bool) -> list[list[_Side]]:
    """The parts of every split, each with its levels."""
    pressures = {share: pressures_of(tables, share, grid.pressures) for share in range(len(tables.shares))}
    found = []
    for split in dict.fromkeys(tuple(sorted(one)) for one in tables.data.splits):
        shares = [tables.shares.index(share) for share in split]
        sides = []
        for share, other in zip(shares, shares[::-1], strict=True):
            received, exerted = (pressures[other], pressures[share]) if len(shares) > 1 else (UNDISTURBED, UNLIMITED)
            levels = levels_of(tables, start, share, received, exerted, grid, relaxed)
            sides.append(_Side(share, levels, (len(received[0]), len(exerted[0]))))
        found.append(sides)
    return found


def turns_oracle(instance: Instance, entry: FleetEntry, profile: str, data: Gpulets, roles: Sequence[Role],
                 copies: NDArray[np.int64]) -> TurnsOracle | None:
    """The oracle of a slice type; None unless it is a whole GPU and the data knows a model of some role."""
    if profile != WHOLE or not any(name in data.models for role in roles for name in role.models):
        return None
    return TurnsOracle(instance, data, roles, copies, entry.type.slice_mps_clients(profile) if entry.mps else 1)


oracle = WayOfSharing(turns_oracle, turns_patterns)
"""The way of sharing: replicas take turns on parts of whole GPUs."""

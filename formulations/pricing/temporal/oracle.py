"""The pattern oracle of gpu-lets (ATC 2022): a GPU has one or two parts, and replicas take turns on each.

A replica runs one batch per duty cycle, whatever rate is routed to it, so the rate of a role is a capacity. Each part
is priced as a knapsack at levels of cycle length and pressure. The best pattern is the best pair of parts whose
pressures match. Patterns are not enumerated, so the time hardly grows with the replicas on a part. For bounds, levels
are intervals of cycle and pressure.

Methods decide the loads of the parts of every GPU, with the smallest batches that carry the rates. Plans have the
largest feasible ones (ATC 2022, Algorithm 1, line 27): a server takes the requests that wait, up to its batch size. So
a larger size costs nothing while few requests wait, and it shortens the queue sooner after a burst.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.pricing.temporal.levels import Side, best_levels, roles_at, sides_of
from provision.formulations.pricing.temporal.listing import turns_patterns
from provision.formulations.pricing.temporal.tables import ALONE, Part, TurnTables
from provision.formulations.search.problem import Role
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SINGLE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

Batches = Sequence[Sequence[int]]
"""For each part of a GPU, the batch sizes of its replicas as indices into ``TurnTables.batches``."""

Parts = tuple[tuple[int, tuple[int, ...]], ...]
"""The parts of a GPU: for each the index of its share, and rows (a role with one of its models) that take turns there.
"""
Place = list[tuple[Side, int]]
"""The parts of a GPU, each with a level (by index)."""


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
    batches = [list(one) for one in settled]
    while _grew(tables, parts, batches):
        pass
    return batches


def _grew(tables: TurnTables, parts: Sequence[Part], batches: list[list[int]]) -> bool:
    """Give one replica the next larger batch size, and return whether any can have it. Replicas with fuller batches are
    tried before others.
    """
    full = [
        (load_rps * busy_ms.sum() / tables.batches[size], part, at)
        for part, ((_, load), busy_ms) in enumerate(zip(parts, _busy(tables, parts, batches), strict=True))
        for at, ((_, load_rps), size) in enumerate(zip(load, batches[part], strict=True))
    ]
    for _, part, at in sorted(full, reverse=True):
        batches[part][at] += 1
        if batches[part][at] < len(tables.batches) and _holds(tables, parts, batches):
            return True
        batches[part][at] -= 1
    return False


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


class TurnsOracle:
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

    Attributes
    ----------
    known
        The parts of the patterns found so far.
    """

    def __init__(self, instance: Instance, data: Gpulets, roles: Sequence[Role], copies: Ints, clients: int) -> None:
        rows = [(at, number, name) for at, role in enumerate(roles) for number, name in enumerate(role.models)
                if name in data.models]
        self.role = np.array([at for at, _, _ in rows], int)
        self.model = np.array([number for _, number, _ in rows], int)
        self.tables = TurnTables(data, [name for _, _, name in rows],
                                 np.array([roles[at].slo_ms * instance.policy.part_of_slo for at in self.role]),
                                 np.array([roles[at].rate_rps for at in self.role]), instance.shared_rule)
        self.copies, self.clients = np.minimum(copies, clients), clients
        self.splits = sides_of(self.tables)
        self.known: dict[Pattern, Parts] = {}

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        for row, role in enumerate(self.role.tolist()):
            parts = ((self.tables.whole, (row,)),)
            if (role,) not in self.known and self._settles(parts):
                self.known[(role,)] = parts
        return [pattern for pattern in self.known if len(pattern) == 1]

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas, with the largest feasible batches; None if it was not found."""
        parts = self.known.get(pattern)
        return None if parts is None else self._run(pattern, parts)

    def price(self, values: Ints, floor: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``.

        The search is repeated at rising prices of memory. At any price, the value of a pattern is at most the value
        less the price of the memory taken, plus the price of all memory (Lagrangian relaxation).
        """
        room_gib, found, most = self.tables.gpu.slice_memory_gib(WHOLE), dict[Pattern, None](), 0
        for part in (0.0, *SCHEDULE.parts):
            gib_price = part * most / room_gib
            each = values[self.role] - np.floor(gib_price * self.tables.memory_gib * (1 - SINGLE)).astype(int)
            places = sorted((place for sides in self.splits for place in _places(sides, each, self.copies[self.role])),
                            key=lambda place: -place[0])
            upper = places[0][0] + math.ceil(gib_price * room_gib * (1 + SINGLE))
            most = min(most, upper) if part else upper
            if most <= floor:
                break
            for _, place in places[:SCHEDULE.found]:
                parts = self._held(place, each, values)
                pattern = tuple(sorted(int(self.role[row]) for _, rows in parts for row in rows))
                if values[list(pattern)].sum() > floor:
                    self.known.setdefault(pattern, parts)
                    found[pattern] = None
        return Priced(list(found), most)

    def _held(self, place: Place, each: Ints, values: Ints) -> Parts:
        """The parts with the most valuable roles at levels, less the replicas of least value, as many as must be left
        out so that the others hold. ``each`` are the values of rows, less the price of their memory.
        """
        every = [(side.share, roles_at(side.units[level], each, self.copies[self.role]).tolist())
                 for side, level in place]
        while True:
            parts = tuple((share, tuple(rows)) for share, rows in every if rows)
            if not parts or self._settles(parts):
                return parts
            least = min(((rows, row) for _, rows in every for row in rows), key=lambda pair: values[self.role[pair[1]]])
            least[0].remove(least[1])

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


def _places(sides: list[Side], values: Ints, copies: Ints) -> Iterator[tuple[int, Place]]:
    """Yield, for every combination of the pressures between the parts of a split, their highest total value, and the
    parts, each with the level at which they have this value. ``values`` and ``copies`` are those of rows.
    """
    found = []
    for side in sides:
        best = best_levels(side.units, values, copies, len(side.units) // (side.shape[0] * side.shape[1]))
        found.append([one.reshape(side.shape) for one in best])
    for at in np.ndindex(*sides[0].shape):
        places = (at, at[::-1])[: len(sides)]
        yield (sum(int(value[place]) for (value, _), place in zip(found, places, strict=True)),
               [(side, int(level[place])) for side, (_, level), place in zip(sides, found, places, strict=True)])


def turns_oracle(instance: Instance, entry: FleetEntry, profile: str, data: Gpulets, roles: Sequence[Role],
                 copies: Ints) -> TurnsOracle | None:
    """The oracle of a slice type; None unless it is a whole GPU and the data knows a model of some role."""
    if profile != WHOLE or not any(name in data.models for role in roles for name in role.models):
        return None
    return TurnsOracle(instance, data, roles, copies, entry.type.slice_mps_clients(profile) if entry.mps else 1)


oracle = WayOfSharing(turns_oracle, turns_patterns)
"""The way of sharing: replicas take turns on parts of whole GPUs."""

"""Lists all undominated patterns of a GPU on which replicas take turns, with the rates that they carry.

A pattern (here also called a way) has replicas with their batches on one or two parts of a GPU. Each replica runs one
batch per duty cycle, whatever is routed to it, under the worst pressure that the other part exerts. A workload may have
several replicas on a part. A way dominates another way if it carries no less under any pressure, exerts no more
pressure, and takes no more memory and replicas. So few ways are undominated that an integer program can list all of
them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import Listing, Member, RatedPattern, RateOracle
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.tolerances import LOOSE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.objective import objective_of

LONG_MS = 1e6
"""A duty cycle, in ms, that stands for no limit."""
LEAST_PRESSURE = -1e9
"""Stands for the pressure of an empty part; it is below the pressure of any replica."""


class _Sets(NamedTuple):
    """Sets of replicas that serve one row (a group with one of its models) on a part of a GPU. The first set is empty.

    ``counts`` (sets, batches) are numbers of replicas by batch size. For every pressure from the other part,
    ``busy_ms`` (pressures, sets) is the sum of the execution times of all replicas, and ``longest_ms`` (pressures,
    sets) is the longest execution time. ``requests`` (sets,) are the requests served in one duty cycle, and ``emitted``
    (sets,) is the pressure on the other part.
    """

    counts: Ints
    busy_ms: Floats
    longest_ms: Floats
    requests: Ints
    emitted: Floats

    @property
    def first(self) -> Self:
        """A copy for only the lowest pressure."""
        return self._replace(busy_ms=self.busy_ms[:1], longest_ms=self.longest_ms[:1])


class _Part(NamedTuple):
    """The ways to use a part of a GPU with the share ``share`` (an index).

    ``counts`` (ways, rows, batches) are numbers of replicas, and ``emitted`` (ways,) the pressures that they exert.
    ``cycles`` (pressures, ways) is the number of duty cycles per second, 0 if an SLO is violated. ``memory_gib`` is
    (ways,).
    """

    share: int
    counts: Ints
    cycles: Floats
    emitted: Floats
    memory_gib: Floats


Places = tuple[_Part, Ints, Ints]
"""The ways to use a part of a GPU; and two arrays (patterns,), the index of the way that each pattern takes, and of the
pressure that the part receives.
"""


class TurnOptions:
    """Lists the ways to use GPUs of one type.

    Parameters
    ----------
    problem, data
        The Problem, and gpu-lets' data of the GPU type.
    clients
        The most replicas on a GPU.
    running
        The most replicas of each group, model and share that run on any one GPU now. Ways that let more of them go on
        are not dominated by others.
    until
        When the list must be complete.
    """

    def __init__(self, problem: Problem, data: Gpulets, clients: int,
                 running: Mapping[tuple[int, int, float], int] | None = None, until: Deadline = NEVER) -> None:
        self.until = until
        groups, policy = problem.groups, problem.instance.policy
        self.rows = [(at, number, name) for at, group in enumerate(groups) for number, name in enumerate(group.models)
                     if name in data.models]
        self.of_group = np.array([[at == one for one in range(len(groups))] for at, _, _ in self.rows], float)
        self.asked_rps = np.array([group.asked_rps * len(group.members) for group in groups])
        self.limited = np.array([bool(np.isfinite(group.most)) for group in groups])
        self.tables = TurnTables(
            data, [name for _, _, name in self.rows],
            [groups[at].slo_ms * policy.part_of_slo for at, _, _ in self.rows],
            [self.asked_rps[at] for at, _, _ in self.rows], problem.instance.shared_rule)
        runs = running or {}
        self.runs = np.array([[runs.get((at, number, share), 0) for at, number, _ in self.rows]
                              for share in self.tables.shares])
        self.allowed_ms, self.clients = self.tables.allowed_ms * (1 + LOOSE), clients
        self.gib = self.tables.gpu.slice_memory_gib(WHOLE) * (1 + LOOSE)

    def listing(self) -> Listing:
        """All ways to use a GPU.

        Raises
        ------
        TooManyError
            If a part has too many ways, or if the time is over.
        """
        found: list[tuple[list[Places], Floats, Floats]] = []
        for split in dict.fromkeys(tuple(sorted(one)) for one in self.tables.data.splits):
            shares = [self.tables.shares.index(share) for share in split]
            found.append(self._wholes(*shares) if len(shares) == 1 else self._pairs(*shares))
        ways, rps, number = zip(*found, strict=True)
        of_split = np.repeat(np.arange(len(found)), [len(one) for one in rps])
        first = np.cumsum([0, *(len(one) for one in rps)])

        def rated(at: int) -> RatedPattern:
            place = at - first[of_split[at]]
            return self._rated([(part, int(way[place]), int(pressure[place]))
                                  for part, way, pressure in ways[of_split[at]]])

        numbers = np.concatenate(number)
        return Listing(np.concatenate(rps) * (1 + LOOSE), numbers[:, :-1], numbers[:, -1], rated)

    def _wholes(self, share: int) -> tuple[list[Places], Floats, Floats]:
        part = self._part(share, np.array([ALONE]))
        every = np.arange(len(part.emitted))
        return [(part, every, 0 * every)], self._rps(part)[0], self._number(part.counts)

    def _pairs(self, one: int, other: int) -> tuple[list[Places], Floats, Floats]:
        """The pairs of ways on two parts of a GPU that keep each other's SLOs, within the GPU's memory and MPS clients.
        """
        felt = [np.unique(self.tables.pressure[share]) for share in (other, one)]
        first = self._part(one, felt[0])
        second = first if one == other else self._part(other, felt[1])
        received = np.searchsorted(felt[0], second.emitted), np.searchsorted(felt[1], first.emitted)
        numbers = self._number(first.counts)[:, None] + self._number(second.counts)
        holds = (first.cycles[received[0]].T > 0) & (second.cycles[received[1]] > 0)
        holds &= np.add.outer(first.memory_gib, second.memory_gib) <= self.gib
        at, beside = np.nonzero(holds & (numbers[..., -1] <= self.clients))
        rps = self._rps(first)[received[0][beside], at] + self._rps(second)[received[1][at], beside]
        places = [(first, at, received[0][beside]), (second, beside, received[1][at])]
        return places, rps, numbers[at, beside]

    def _rps(self, part: _Part) -> Floats:
        """(pressures, ways, groups) the requests/s of each group that each way to use a part carries."""
        rps: Floats = part.cycles[..., None] * (part.counts @ self.tables.batches @ self.of_group)
        return rps

    def _rated(self, places: Sequence[tuple[_Part, int, int]]) -> RatedPattern:
        """The pattern of the given ways on the parts of one GPU, with what each replica carries."""
        members: list[Member] = []
        rps: list[float] = []
        for turn, (part, at, pressure) in enumerate(places):
            counts, cycles = part.counts[at], float(part.cycles[pressure, at]) * (1 + LOOSE)
            for row, size in np.argwhere(counts).tolist():
                group, model, _ = self.rows[row]
                run = Running(model, int(self.tables.batches[size]), 1, self.tables.shares[part.share],
                              turn if counts.sum() > 1 else None)
                members += [Member(group, run)] * int(counts[row, size])
                rps += [cycles * run.batch] * int(counts[row, size])
        return RatedPattern(tuple(members), tuple(rps))

    def _part(self, share: int, pressures: Floats) -> _Part:
        """The undominated ways to use a part with a share. ``pressures`` are those that the other part may exert, in
        ascending order.
        """
        busy_ms = np.stack([self.tables.beside(share, pressure) for pressure in pressures])
        sets = [self._sets(share, row, busy_ms[:, row]) for row in range(len(self.rows))]
        way = np.zeros((1, 0), int)
        for known in range(1, len(sets) + 1):
            way = np.column_stack([np.repeat(way, len(sets[known - 1].counts), axis=0),
                                   np.tile(np.arange(len(sets[known - 1].counts)), len(way))])
            if len(way) > SCHEDULE.ways or self.until.over:
                raise TooManyError
            way = self._kept(share, sets[:known], way)
        way = way[way.any(axis=1)]
        busy, room = _together(sets, way, self.allowed_ms)
        counts = np.stack([one.counts[way[:, row]] for row, one in enumerate(sets)], axis=1)
        cycles = np.where(room >= 0, 1000 / busy, 0.0)
        emitted = np.max([one.emitted[way[:, row]] for row, one in enumerate(sets)], axis=0)
        part = _Part(share, counts, cycles, emitted, self._memory_gib(counts))
        rps = np.minimum(self._rps(part) / self.asked_rps, 1)
        kept = undominated(np.column_stack([*rps, -emitted, -part.memory_gib, -self._number(counts),
                                            self._going_on(share, counts)]), until=self.until)
        return _Part(share, counts[kept], cycles[:, kept], emitted[kept], part.memory_gib[kept])

    def _kept(self, share: int, sets: Sequence[_Sets], way: Ints) -> Ints:
        """Those of ``way`` (ways, rows) that fit a GPU's memory and clients, and keep SLOs under the lowest pressure.

        If there are many, ways that another way dominates are left out.
        """
        replicas = np.stack([one.counts.sum(axis=1)[way[:, row]] for row, one in enumerate(sets)], axis=1)
        memory_gib = replicas @ self.tables.memory_gib[: len(sets)]
        way = way[(memory_gib <= self.gib) & (replicas.sum(axis=1) <= self.clients)]
        way = way[_together([one.first for one in sets], way, self.allowed_ms)[1][0] >= 0]
        if len(way) <= SCHEDULE.many:
            return way
        busy, room = _together(sets, way, self.allowed_ms)
        counts = np.stack([one.counts[way[:, row]] for row, one in enumerate(sets)], axis=1)
        requests = [one.requests[way[:, row]] for row, one in enumerate(sets)]
        emitted = np.max([one.emitted[way[:, row]] for row, one in enumerate(sets)], axis=0)
        features = [*-busy, *np.minimum(room, LONG_MS), *requests, -emitted, -self._memory_gib(counts)]
        features += [-self._number(counts), self._going_on(share, counts)]
        return way[undominated(np.column_stack(features), until=self.until)]

    def _memory_gib(self, counts: Ints) -> Floats:
        """(ways,) the memory in GiB of ``counts`` (ways, rows, batches) replicas."""
        memory_gib: Floats = counts.sum(axis=2) @ self.tables.memory_gib[: counts.shape[1]]
        return memory_gib

    def _number(self, counts: Ints) -> Floats:
        """(ways, groups + 1) the number of replicas of each group (0 if it is not limited); the last column counts the
        replicas of all groups.
        """
        rows = counts.sum(axis=2)
        return np.column_stack([rows @ self.of_group[: rows.shape[1]] * self.limited, rows.sum(axis=1)])

    def _going_on(self, share: int, counts: Ints) -> Ints:
        """(ways, rows) the number of running replicas that may go on, for the rows with running replicas on this share.
        """
        runs = self.runs[share, : counts.shape[1]]
        going: Ints = np.minimum(counts.sum(axis=2), runs)[:, runs > 0]
        return going

    def _sets(self, share: int, row: int, busy_ms: Floats) -> _Sets:
        """The undominated sets of replicas of one row that keep its SLO. ``busy_ms`` is (pressures, batches)."""
        batches, allowed_ms = self.tables.batches, self.allowed_ms[row]
        enough = int(np.ceil(self.asked_rps[self.rows[row][0]] * allowed_ms / 1000))
        found = newest = np.zeros((1, len(batches)), int)
        while len(newest):
            grown = np.unique((newest[:, None] + np.eye(len(batches), dtype=int)).reshape(-1, len(batches)), axis=0)
            every = self._described(share, row, np.concatenate([found, grown]), busy_ms, enough)
            room = allowed_ms - every.busy_ms - every.longest_ms
            number = every.counts.sum(axis=1)
            features = np.column_stack([*-every.busy_ms, *room, every.requests, -every.emitted, -number,
                                        np.minimum(number, self.runs[share, row])])
            kept = undominated(features[room[0] >= 0], SCHEDULE.sets, self.until)
            kept = np.flatnonzero(room[0] >= 0)[kept]
            newest = every.counts[kept[kept >= len(found)]]
            found = np.concatenate([found, newest])
        return self._described(share, row, found, busy_ms, enough)

    def _described(self, share: int, row: int, counts: Ints, busy_ms: Floats, enough: int) -> _Sets:
        """The _Sets with the given ``counts``. Of the requests in a duty cycle, at most ``enough`` are counted."""
        present = counts.any(axis=1)
        largest = counts.shape[1] - 1 - (counts[:, ::-1] > 0).argmax(axis=1)
        emitted = np.where(present, self.tables.pressure[share][row, largest], ALONE)
        return _Sets(counts, busy_ms @ counts.T, np.where(present, busy_ms[:, largest], 0.0),
                     np.minimum(counts @ self.tables.batches, enough), np.maximum(emitted, LEAST_PRESSURE))


def _together(sets: Sequence[_Sets], way: Ints, allowed_ms: Floats) -> tuple[Floats, Floats]:
    """Two arrays (pressures, ways): the duty cycle in ms, and by how many ms it could be longer so that all replicas
    still keep their SLOs; negative if a replica misses its SLO.
    """
    busy = np.sum([one.busy_ms[:, way[:, row]] for row, one in enumerate(sets)], axis=0)
    room = np.min([np.where(way[:, row] > 0, allowed_ms[row] - one.longest_ms[:, way[:, row]], np.inf)
                   for row, one in enumerate(sets)], axis=0)
    return busy, room - busy


def listing(problem: Problem, slice_type: SliceType, data: Gpulets,
            running: Mapping[tuple[int, int, float], int] | None = None, until: Deadline = NEVER) -> Listing | None:
    """The ways to use a slice type.

    None if feasibility depends on the rates (other latency rules than half_slo), if workloads limit their rate per GPU
    or need several replicas, if there are too many ways, if the list is not complete at the deadline ``until``, or if
    no workload needs a replica.
    """
    instance, entry = problem.instance, problem.instance.fleet[slice_type.entry]
    free = all(group.least <= 1 and not np.isfinite(group.cap_rps) for group in problem.groups)
    if (
        slice_type.profile != WHOLE
        or instance.policy.latency_budget != "half_slo"
        or objective_of(instance).counts_capacity
        or not free
        or not problem.groups
    ):
        return None
    try:
        clients = entry.type.slice_mps_clients(WHOLE) if entry.mps else 1
        return TurnOptions(problem, data, clients, running, until).listing()
    except TooManyError:
        return None


def turns_patterns(problem: Problem, slice_type: SliceType, data: Gpulets, until: Deadline = NEVER
                   ) -> RateOracle | None:
    """An oracle that lists all patterns of a slice type. None if they cannot be listed until the deadline, or for
    objective max_throughput.
    """
    found = None if problem.fills else listing(problem, slice_type, data, until=until)
    return None if found is None else RateOracle(found)

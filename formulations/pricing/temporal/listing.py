"""Lists all undominated patterns of a GPU on which replicas take turns, with the rates that they carry.

A pattern (here also called a way) has replicas with their batches on one or two parts of a GPU. Each replica runs one
batch per duty cycle, whatever is routed to it, under the worst pressure that the other part exerts. A workload may have
several replicas on a part. A way dominates another way if it carries no less under any pressure, exerts no more
pressure, and takes no more memory and replicas. So few ways are undominated that an integer program can list all of
them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import Listing, Member, RatedPattern, RateOracle, TooManyError, undominated
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.tolerances import DUST, LOOSE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.objective import objective_of


class _Part(NamedTuple):
    """Ways to use a part of a GPU with the share ``share`` (an index).

    ``counts`` (ways, rows, batches) are numbers of replicas of each row (a group with one of its models), and
    ``emitted`` (ways,) the pressures that they exert. For every pressure from the other part, ``cycle_ms`` (pressures,
    ways) is the duty cycle, and ``allowed_ms`` (pressures, ways) the longest one with which all replicas keep their
    SLOs.
    """

    share: int
    counts: Ints
    emitted: Floats
    cycle_ms: Floats
    allowed_ms: Floats

    def only(self, ways: Ints) -> "_Part":
        """The ways with the given indices."""
        return _Part(self.share, self.counts[ways], self.emitted[ways], self.cycle_ms[:, ways],
                     self.allowed_ms[:, ways])

    @property
    def holds(self) -> NDArray[np.bool_]:
        """(pressures, ways) whether all replicas keep their SLOs."""
        return self.cycle_ms <= self.allowed_ms


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
        found = [self._of_split(*(self.tables.shares.index(share) for share in split))
                 for split in dict.fromkeys(tuple(sorted(one)) for one in self.tables.data.splits)]
        first = np.cumsum([0, *(len(one.rps) for one in found)])

        def rated(at: int) -> RatedPattern:
            split = int(np.searchsorted(first, at, side="right")) - 1
            return found[split].rated(at - int(first[split]))

        rps, number, replicas, _ = zip(*found, strict=True)
        return Listing(np.concatenate(rps), np.concatenate(number), np.concatenate(replicas), rated)

    def _of_split(self, one: int, other: int | None = None) -> Listing:
        """The pairs of ways to use two parts of a GPU, such that both keep their SLOs beside each other and the GPU has
        the memory and the MPS clients. If ``other`` is None there is one part, and the other way is empty.
        """
        felt = [np.array([ALONE]) if share is None else np.unique(self.tables.pressure[share])
                for share in (other, one)]
        first = self._part(one, felt[0])
        if other is None:
            second = self._of_row(one, 0, felt[1]).only(np.array([0]))
        else:
            second = first if one == other else self._part(other, felt[1])
        received = np.searchsorted(felt[0], second.emitted), np.searchsorted(felt[1], first.emitted)
        at, beside = np.nonzero(self._fits(first, second) & first.holds[received[0]].T & second.holds[received[1]])

        def rated(place: int) -> RatedPattern:
            here, there = int(at[place]), int(beside[place])
            return self._rated([(first, here, int(received[0][there])), (second, there, int(received[1][here]))])

        rps = self._rps(first)[received[0][beside], at] + self._rps(second)[received[1][at], beside]
        number = self._number(first.counts)[at] + self._number(second.counts)[beside]
        return Listing(rps * (1 + LOOSE), number[:, :-1], number[:, -1], rated)

    def _rps(self, part: _Part) -> Floats:
        """(pressures, ways, groups) the requests/s of each group that each way carries; 0 for an empty way."""
        per_s = np.where(part.holds, 1000 / np.maximum(part.cycle_ms, DUST), 0)
        rps: Floats = per_s[..., None] * (part.counts @ self.tables.batches @ self.of_group)
        return rps

    def _rated(self, places: Sequence[tuple[_Part, int, int]]) -> RatedPattern:
        """The pattern of the given ways on the parts of one GPU, with what each replica carries."""
        members: list[Member] = []
        rps: list[float] = []
        for turn, (part, at, pressure) in enumerate(places):
            counts, cycle_ms = part.counts[at], float(part.cycle_ms[pressure, at])
            for row, size in np.argwhere(counts).tolist():
                group, model, _ = self.rows[row]
                run = Running(model, int(self.tables.batches[size]), 1, self.tables.shares[part.share],
                              turn if counts.sum() > 1 else None)
                members += [Member(group, run)] * int(counts[row, size])
                rps += [1000 / cycle_ms * run.batch * (1 + LOOSE)] * int(counts[row, size])
        return RatedPattern(tuple(members), tuple(rps))

    def _part(self, share: int, pressures: Floats) -> _Part:
        """The undominated ways to use a part with a share. ``pressures`` are those that the other part may exert, in
        ascending order.

        Rows are added one by one, each with its undominated sets of replicas. These grow by one replica at a time.
        """
        found = self._of_row(share, 0, pressures).only(np.array([0]))
        for row in range(len(self.rows)):
            sets = single = self._of_row(share, row, pressures)
            replicas = 1
            while sets.counts.sum(axis=(1, 2)).max() == replicas:
                both = self._joined(sets, single)
                sets, replicas = both.only(undominated(self._growing(both), SCHEDULE.sets, self.until)), replicas + 1
            found = self._joined(found, sets)
            if len(found.counts) > SCHEDULE.many:
                found = found.only(undominated(self._growing(found), until=self.until))
        found = found.only(np.flatnonzero(found.counts.any(axis=(1, 2))))
        rps = np.minimum(self._rps(found) / self.asked_rps, 1)
        return found.only(undominated(np.column_stack([*rps, *self._taken(found)]), until=self.until))

    def _of_row(self, share: int, row: int, pressures: Floats) -> _Part:
        """The empty way, and then the ways of one replica of a row, with each batch."""
        size = np.arange(len(self.tables.batches))
        counts = np.zeros((len(size) + 1, len(self.rows), len(size)), int)
        counts[size + 1, row, size] = 1
        busy_ms = np.array([[0.0, *self.tables.beside(share, pressure)[row]] for pressure in pressures])
        return _Part(share, counts, np.array([ALONE, *self.tables.pressure[share][row]]), busy_ms,
                     np.where(busy_ms > 0, self.allowed_ms[row] - busy_ms, np.inf))

    def _joined(self, one: _Part, other: _Part) -> _Part:
        """The ways of one _Part together with those of the other, where they fit a GPU's memory and clients, and keep
        SLOs under the lowest pressure.
        """
        if len(one.counts) * len(other.counts) > SCHEDULE.ways or self.until.over:
            raise TooManyError
        holds = (np.add.outer(one.cycle_ms[0], other.cycle_ms[0])
                 <= np.minimum.outer(one.allowed_ms[0], other.allowed_ms[0]))
        at, beside = np.nonzero(self._fits(one, other) & holds)
        return _Part(one.share, one.counts[at] + other.counts[beside],
                     np.maximum(one.emitted[at], other.emitted[beside]),
                     one.cycle_ms[:, at] + other.cycle_ms[:, beside],
                     np.minimum(one.allowed_ms[:, at], other.allowed_ms[:, beside]))

    def _fits(self, one: _Part, other: _Part) -> NDArray[np.bool_]:
        """(ways, others) whether a way of one _Part and one of the other fit a GPU's memory and clients."""
        memory_gib, replicas = ((of(one.counts), of(other.counts)) for of in (self._memory_gib, self._number))
        fits: NDArray[np.bool_] = np.add.outer(*memory_gib) <= self.gib
        return fits & (np.add.outer(*(number[:, -1] for number in replicas)) <= self.clients)

    def _growing(self, part: _Part) -> Floats:
        """(ways, features) what ways need to dominate others after both have grown: more is better."""
        enough = np.ceil(self.of_group @ self.asked_rps * self.allowed_ms / 1000)
        requests = np.minimum(part.counts @ self.tables.batches, enough)
        return np.column_stack([*-part.cycle_ms, *(part.allowed_ms - part.cycle_ms), requests, *self._taken(part)])

    def _taken(self, part: _Part) -> list[Floats]:
        """Features of ways, each (ways,) or (ways, columns), of which more is better: what the ways take, negated, and
        how many of the running replicas on this share may go on.
        """
        runs, replicas = self.runs[part.share], part.counts.sum(axis=2)
        return [-part.emitted, -self._memory_gib(part.counts), -self._number(part.counts),
                np.minimum(replicas, runs)[:, runs > 0]]

    def _memory_gib(self, counts: Ints) -> Floats:
        """(ways,) the memory in GiB of ``counts`` (ways, rows, batches) replicas."""
        memory_gib: Floats = counts.sum(axis=2) @ self.tables.memory_gib
        return memory_gib

    def _number(self, counts: Ints) -> Floats:
        """(ways, groups + 1) the number of replicas of each group (0 if it is not limited); the last column counts the
        replicas of all groups.
        """
        rows = counts.sum(axis=2)
        return np.column_stack([rows @ self.of_group * self.limited, rows.sum(axis=1)])


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

"""Plans with mixed slices: ever fewer or cheaper GPUs, while ruin and recreate still carries every rate on them."""

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from provision.formulations.mixed.search import NONE, State, empty_state, furnish, improve, take_off
from provision.formulations.mixed.tables import tables_of
from provision.models.base.tolerances import TOLERANCE
from provision.models.contents.alone.assemble import Layout, assemble
from provision.models.contents.alone.segments import Segments
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance

NAME = "mixed-slices"
ROUNDS = 500
"""Ruins between two looks at the clock."""
FURTHER = 1.05
"""Factor from one number of GPUs to the next that is tried."""
A_MOMENT_S = 0.05
"""Seconds on a number of GPUs before another one is opened."""


class RuinAndRecreate:
    """The search for plans of one instance; ``plans`` yields ever better ones.

    Parameters
    ----------
    instance, segments
        The problem, and its segments.
    ruins
        Ruins after which a number of GPUs is given up if the rates are not all carried.
    seed
        Seed of the random numbers.
    """

    def __init__(self, instance: Instance, segments: Segments, ruins: int, seed: int) -> None:
        self.instance, self.segments, self.ruins = instance, segments, ruins
        self.tables, self.draw = tables_of(instance, segments), np.random.default_rng(seed)
        self.weights = np.array([instance.weight(entry) for entry in instance.fleet])
        improve(self.tables, self._furnished(self.tables.entry[:1].tolist()), 1, seed)

    def plans(self, start: Plan | None, bound: float, until: float) -> Iterator[Plan]:
        """Plans that cost less than the one to begin with and less than one another.

        Parameters
        ----------
        start
            A Plan or None.
        bound
            A lower bound on the cost; the search stops there.
        until
            The perf_counter at which to end.
        """
        state = self._furnished(self.instance.entries_of(start)) if start else self._opened(until)
        if state is not None and not start:
            yield self._plan(state)
        while state is not None:
            state = self._first_carried(self._cheaper(state, bound), until)
            if state is not None:
                yield self._plan(state)

    def _furnished(self, entries: Sequence[int]) -> State:
        """GPUs of some fleet entries, furnished one after the other."""
        planned = [self.instance.planned_rps(one) > 0 for one in self.instance.workloads]
        replicas = [one.min_replicas for one in self.instance.workloads]
        state = empty_state(self.tables, entries, planned, replicas)
        for gpu in range(len(entries)):
            furnish(self.tables, state, gpu, self.tables.worth)
        return state

    def _opened(self, until: float) -> State | None:
        """GPUs opened one at a time, of the entries in turn, until they carry everything; None when they do not."""
        useful = sorted(set(self.tables.entry.tolist()), key=lambda entry: self.weights[entry])
        entries: list[int] = []
        tried = 0
        while perf_counter() < until and (room := [entry for entry in useful if self._left(entries, entry) > 0]):
            entries.append(room[len(entries) % len(room)])
            if len(entries) < tried * FURTHER or len(entries) < self.tables.worth.sum():
                continue
            tried = len(entries)
            state = self._first_carried([self._furnished(entries)], min(until, perf_counter() + A_MOMENT_S))
            if state is not None:
                return state
        return self._first_carried([self._furnished(entries)], until)

    def _left(self, entries: Sequence[int], entry: int) -> float:
        """How many more GPUs of an entry there are."""
        count = self.instance.fleet[entry].count
        return (np.inf if count is None else count) - entries.count(entry)

    def _cheaper(self, state: State, bound: float) -> list[State]:
        """States a step cheaper: without one GPU of an entry, or with one of a cheaper entry in its place."""
        entries, found = state.entry.tolist(), []
        cost = self.weights[entries].sum()
        for old in sorted(set(entries)):
            gpu = self.draw.choice(np.flatnonzero(state.entry == old))
            for new in (NONE, *np.flatnonzero(self.weights < self.weights[old])):
                saved = self.weights[old] - (self.weights[new] if new != NONE else 0)
                if cost - saved >= bound * (1 - TOLERANCE) and (new == NONE or self._left(entries, new) > 0):
                    found.append(take_off(self.tables, state, gpu, new))
        return found

    def _first_carried(self, states: Iterable[State], until: float) -> State | None:
        """Ruin and recreate some states in turn; returns the first that carries all rates, None when none does."""
        for _ in range(0, self.ruins, ROUNDS):
            for state in states if perf_counter() < until else ():
                if improve(self.tables, state, ROUNDS, self.draw.integers(2**31)) == 0:
                    return state
        return None

    def _plan(self, state: State) -> Plan:
        """The Plan of a State that carries everything."""
        shared: list[tuple[Replica, ...]] = []
        layouts = []
        for gpu, entry in enumerate(state.entry):
            held = []
            for place in np.flatnonzero((state.alone[gpu] != NONE) | (state.setting[gpu] != NONE)).tolist():
                index = state.alone[gpu, place]
                if index == NONE:
                    index = len(self.instance.workloads) + len(shared)
                    shared.append(self._replicas(state, gpu, place))
                held.append((int(state.kind[gpu, place]), int(index)))
            layouts.append(Layout(int(entry), tuple(held)))
        return assemble(self.instance, self.segments, layouts, NAME, shared)

    def _replicas(self, state: State, gpu: int, place: int) -> tuple[Replica, ...]:
        """The replicas of a shared slice; of a workload with min_replicas above 1 every process is a replica."""
        first = self.tables.first[state.setting[gpu, place]]
        found: list[Replica] = []
        for here in np.flatnonzero(state.counts[gpu, place]):
            w, processes = self.tables.workload[first + here], int(state.counts[gpu, place, here])
            workload, copies = self.instance.workloads[w], processes if self.tables.split[w] else 1
            rate_rps = state.parts[gpu, place, here] * self.instance.planned_rps(workload) / copies
            found += [Replica(workload=workload.name, batch=int(self.tables.batch[first + here]),
                              processes=processes // copies, rate_rps=float(rate_rps))] * copies
        return tuple(found)

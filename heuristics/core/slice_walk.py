"""The walk of `lns` over plans of slices: ruin and recreate on ever fewer or cheaper GPUs, until they carry every rate.

It begins on the GPUs of a given plan, or without one on more and more GPUs, and knows nothing of the slices there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.search.segments import Segments
from provision.heuristics.core.schedule import SliceSchedule
from provision.heuristics.core.slice_filling import State
from provision.heuristics.core.slice_search import empty_state, furnish, improve, uncarried, without
from provision.heuristics.core.slice_tables import NONE, tables_of
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

SCHEDULE = SliceSchedule()


@dataclass
class _Trial:
    """GPUs that are tried, the least worth so far of what they do not carry, and that when it last was progress."""

    state: State
    least: float
    noted: float


class SliceWalk:
    """Ruin and recreate over slices.

    Parameters
    ----------
    instance, segments
        The problem, and its segments.
    start
        A Plan to beat, or None.
    bound
        A proven bound on the objective; nothing cheaper is tried.
    draw
        Of random numbers.
    patience
        Steps without progress, for each of the sets of GPUs tried, after which a walk with a plan ends.

    Attributes
    ----------
    useful
        Fleet entries whose GPUs can serve some workload.
    """

    def __init__(self, instance: Instance, segments: Segments, start: Plan | None, bound: float,
                 draw: np.random.Generator, patience: float = np.inf) -> None:
        self.instance, self.segments, self.start, self.bound, self.draw = instance, segments, start, bound, draw
        self.patience = patience
        self.tables = tables_of(instance, segments, SCHEDULE)
        self.weights = np.array([objective_of(instance).weight(entry) for entry in instance.fleet])
        self.useful = sorted(set(self.tables.entry.tolist()))
        self.best: State | None = None
        self.trials: list[_Trial] = []
        self.turn = self.done = self.idle = 0
        if start is None:
            self._open()
        else:
            self._try(self._cheaper(self._furnished(objective_of(instance).entries_of(start))))

    @property
    def ended(self) -> bool:
        """Whether there are no GPUs left to try, or patience is at its end."""
        return not self.trials or (self.value is not None and self.idle >= self.patience * len(self.trials))

    @property
    def value(self) -> float | None:
        """The objective of the best plan; None without one."""
        if self.best is not None:
            return float(self.weights[self.best.entry].sum())
        return None if self.start is None else objective_of(self.instance).value(self.start)

    def step(self, steps: int) -> bool:
        """Take this number of steps; returns whether there is a better plan."""
        better = False
        while steps > 0 and not self.ended:
            trial, many = self.trials[self.turn], min(steps, SCHEDULE.steps - self.done)
            trial.least = improve(self.tables, trial.state, trial.least, many, self.draw)
            steps, self.done = steps - many, self.done + many
            if trial.least == 0:
                self.best, better = trial.state, True
                self._try(self._cheaper(trial.state))
            elif self.done == SCHEDULE.steps:
                self.idle += SCHEDULE.steps
                if trial.least <= trial.noted - SCHEDULE.progress:
                    trial.noted, self.idle = trial.least, 0
                self.turn, self.done = (self.turn + 1) % len(self.trials), 0
                if self.value is None:
                    self._open()
        return better

    def plan(self, method: str) -> Plan | None:
        """The best plan; None without one."""
        if self.best is None:
            return self.start
        shared: list[tuple[Replica, ...]] = []
        layouts = []
        for gpu, entry in enumerate(self.best.entry):
            held = []
            for place in np.flatnonzero((self.best.alone[gpu] != NONE) | (self.best.setting[gpu] != NONE)).tolist():
                index = self.best.alone[gpu, place]
                if index == NONE:
                    index = len(self.instance.workloads) + len(shared)
                    shared.append(tuple(self._replicas(self.best.ways[gpu, place], self.best.parts[gpu, place])))
                held.append((int(self.best.slice_type[gpu, place]), int(index)))
            layouts.append(Layout(int(entry), tuple(held)))
        return assemble(self.instance, self.segments, layouts, method, shared)

    def _try(self, states: Iterable[State]) -> None:
        """Try these GPUs from now on."""
        lacking = [(state, uncarried(self.tables, state)) for state in states]
        self.trials = [_Trial(state, least, least) for state, least in lacking]
        self.turn = self.done = self.idle = 0

    def _furnished(self, entries: Sequence[int]) -> State:
        """GPUs of some fleet entries, furnished one after the other."""
        planned = [self.instance.planned_rps(one) > 0 for one in self.instance.workloads]
        state = empty_state(self.tables, entries, planned)
        for gpu in range(len(entries)):
            furnish(self.tables, state, gpu, self.tables.worth, self.draw)
        return state

    def _open(self) -> None:
        """Try more GPUs, of all entries in turn, while there are any."""
        cheapest = sorted(self.useful, key=lambda entry: self.weights[entry])
        before = self.trials[0].state.entry.tolist() if self.trials else []
        entries, wanted = list(before), max(len(before) * SCHEDULE.further, self.tables.worth.sum())
        while (len(entries) < wanted or len(entries) == len(before)) and (
                room := [entry for entry in cheapest if self._left(entries, entry) > 0]):
            entries.append(room[len(entries) % len(room)])
        if len(entries) > len(before):
            self._try([self._furnished(entries)])

    def _left(self, entries: Sequence[int], entry: int) -> float:
        """How many more GPUs of an entry there are."""
        count = self.instance.fleet[entry].count
        return (np.inf if count is None else count) - entries.count(entry)

    def _cheaper(self, state: State) -> Iterator[State]:
        """States a step cheaper: without one GPU of an entry, or with one of a cheaper entry in its place."""
        entries = state.entry.tolist()
        cost = self.weights[entries].sum()
        for old in sorted(set(entries)):
            gpu = int(self.draw.choice(np.flatnonzero(state.entry == old)))
            for new in (NONE, *self.useful):
                saved = self.weights[old] - (self.weights[new] if new != NONE else 0)
                worthy = saved > 0 and len(entries) > (new == NONE) and cost - saved >= self.bound * (1 - TOLERANCE)
                if worthy and (new == NONE or self._left(entries, new) > 0):
                    yield without(self.tables, state, gpu, new)

    def _replicas(self, ways: Sequence[int], parts: Sequence[float]) -> Iterator[Replica]:
        """The replicas of a shared slice: one for every way of counted workloads, else one for all processes alike."""
        tables, held = self.tables, [(way, part) for way, part in zip(ways, parts, strict=True) if way != NONE]
        grouped: dict[tuple[int, int], list[float]] = {}
        for at, (way, part) in enumerate(held):
            counted = tables.counted[tables.workload[way]]
            grouped.setdefault((way, at if counted else NONE), []).append(part)
        for (way, _), carried in grouped.items():
            workload = self.instance.workloads[tables.workload[way]]
            yield Replica(workload=workload.name, batch=int(tables.batch[way]),
                          processes=int(tables.processes[way]) * len(carried), model=workload.named(tables.model[way]),
                          rate_rps=float(sum(carried)) * self.instance.planned_rps(workload))

"""Ruins and recreates plans on ever fewer or cheaper GPUs, until no cheaper GPUs are found to carry every rate."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.problem import Problem
from provision.heuristics.core.filling import new_slot
from provision.heuristics.core.ruin import furnished, improve, without
from provision.heuristics.core.schedule import SCHEDULE
from provision.heuristics.core.state import State, empty_state, kept, uncarried
from provision.heuristics.core.tables import NONE, SliceModel
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Search, Termination
from provision.models.problem.workload import LEAST_RPS


class Walk:
    """A search that improves a plan step by step.

    Parameters
    ----------
    problem
        The problem.
    start
        A plan to beat; None for none. A walk begins with GPUs that are filled one after the other. If they cost more
        than the plan, it begins with the plan.
    bound
        A proven bound on the objective; no cheaper GPUs are tried.
    draw
        The generator of random numbers.
    until
        When the first step can begin at the latest. Raises TimeIsUpError if it cannot begin by then.
    patience
        The steps without a better plan, per set of GPUs that is tried, after which a walk with a plan ends.
    taken
        The fleet entries of GPUs that the walk may not use, because the plan of other workloads uses them.

    Attributes
    ----------
    useful
        Fleet entries whose GPUs can serve some workload.
    trials, least
        The sets of GPUs that are tried in turn; and for each the least price so far of the rates that its GPUs do not
        carry.
    taken
        The steps taken so far.
    """

    def __init__(self, problem: Problem, start: Plan | None, bound: float, draw: np.random.Generator,
                 until: Deadline, patience: float = np.inf, taken: Sequence[int] = ()) -> None:
        self.problem, self.instance, self.start, self.bound, self.draw = problem, problem.instance, start, bound, draw
        self.patience = patience
        self.model = SliceModel(problem, until)
        self.tables = self.model.tables
        self.slot = new_slot(self.tables, self._empty([]))
        self.weights = np.array([objective_of(self.instance).weight(entry) for entry in self.instance.fleet])
        self.useful = sorted(set(self.tables.partitions[:, 0].tolist()))
        self.counts = [np.inf if entry.count is None else entry.count - taken.count(at)
                       for at, entry in enumerate(self.instance.fleet)]
        self.best: State | None = None
        self.trials, self.least = list[State](), list[float]()
        self.turn = self.done = self.idle = self.taken = 0
        self._begin(until)
        objective = objective_of(self.instance)
        if start is not None and (self.best is None or objective.better(objective.value(start), self.value)):
            self.go_on_from(start, bound, until)

    def go_on_from(self, plan: Plan, bound: float, until: Deadline) -> None:
        """Try GPUs that cost less than those of a plan, and no less than a proven ``bound``. Raises TimeIsUpError if
        the time is over before.
        """
        state = self._planned(plan, until)
        self.start, self.best, self.bound = plan, None, bound
        self._try(self._cheaper(state))

    @property
    def ended(self) -> bool:
        """Whether there are no GPUs left to try, or ``patience`` is used up."""
        return not self.trials or (self.value is not None and self.idle >= self.patience * len(self.trials))

    @property
    def value(self) -> float | None:
        """The objective of the best plan; None if there is no plan."""
        if self.best is not None:
            return float(self.weights[self.best.entry].sum())
        return None if self.start is None else objective_of(self.instance).value(self.start)

    def go(self, search: Search, most: float = np.inf) -> Termination:
        """Take steps until a plan is proven by the bound of a Search, its time is over, the walk has taken ``most``
        steps in all, or nothing is left to try; return why it ended. Better values are reported. A later call goes on
        where this call ended.
        """
        steps, self.bound = 1, search.bound or 0.0
        search.report(Incumbent(self.value, search.bound))
        while self.taken < most and not self.ended and not objective_of(self.instance).proved(self.value, search.bound):
            if not search.left_s:
                return "time_limit"
            many, watch = int(min(steps, most - self.taken)), Stopwatch()
            if self.step(many):
                search.report(Incumbent(self.value, search.bound))
            steps = max(int(many * SCHEDULE.chunk_s / max(watch.elapsed_s, SCHEDULE.chunk_s / 2)), 1)
        return "completed"

    def step(self, steps: int) -> bool:
        """Take this number of steps; return whether they found a better plan."""
        self.taken, better = self.taken + steps, False
        while steps > 0 and not self.ended:
            state, many = self.trials[self.turn], min(steps, SCHEDULE.steps - self.done)
            before = kept(state, range(len(state.entry)))
            self.least[self.turn] = improve(
                self.tables, state, before, self.slot, self.least[self.turn], many, self.draw)
            steps, self.done = steps - many, self.done + many
            if self.least[self.turn] == 0:
                self.best, better = state, True
                self._try(self._cheaper(state))
            elif self.done == SCHEDULE.steps:
                self._next()
        return better

    def plan(self, method: str) -> Plan | None:
        """The best plan; None if there is no plan."""
        if self.best is None:
            return self.start
        return assembled(self.problem, [self], method)

    def layouts(self, shared: list[tuple[Replica, ...]]) -> Iterator[Layout]:
        """Yield the layouts of the best GPUs; the replicas of shared slices are appended to ``shared``."""
        assert self.best is not None
        for gpu, entry in enumerate(self.best.entry.tolist()):
            held = []
            for place, (slice_type, setting, row) in enumerate(self.best.slices[gpu].tolist()):
                if row != NONE:
                    held.append((slice_type, int(self.model.rows[row])))
                elif setting != NONE:
                    held.append((slice_type, len(self.instance.workloads) + len(shared)))
                    shared.append(self._replicas(gpu, place))
            yield Layout(entry, tuple(held))

    def _try(self, states: Iterable[State]) -> None:
        """From now on, try these states."""
        self.trials = list(states)
        self.least = [uncarried(self.tables, state) for state in self.trials]
        self.turn = self.done = self.idle = 0

    def _next(self) -> None:
        """Go on to the next trial after some steps; as long as no plan is known, more GPUs are added."""
        state = self.trials[self.turn]
        self.idle += SCHEDULE.steps
        self.turn, self.done = (self.turn + 1) % len(self.trials), 0
        if self.value is None:
            self._open(state)

    def _begin(self, until: Deadline) -> None:
        """Fill GPUs one after the other until all rates are carried; each is of the entry that carries most for its
        price.
        """
        state, used = self._empty([]), 0
        self.slot.rows["factor"] = 1
        while uncarried(self.tables, state) > 0:
            until.check()
            if used == len(state.entry):
                state = self._extended(state, [NONE] * max(used, int(self.tables.price[:, -1].sum()) + 1))
            left = [entry for entry in self.useful if self._left(state.entry[:used].tolist(), entry) > 0]
            gains = [self._gain(state, used, entry) for entry in left] if len(left) > 1 else [0.0] * len(left)
            state.entry[used] = left[int(np.argmax(gains))] if left else NONE
            if furnished(self.tables, state, self.slot, used, NONE) <= 0:
                break
            used += 1
        state = kept(state, range(used))
        if uncarried(self.tables, state) == 0:
            self.best = state
            self._try(self._cheaper(state))
        else:
            self._open(state)

    def _gain(self, state: State, gpu: int, entry: int) -> float:
        """The worth of a further GPU of an entry, divided by its price."""
        trial = kept(state, [gpu])
        trial.entry[0] = entry
        return float(furnished(self.tables, trial, self.slot, 0, NONE) / max(self.weights[entry], TOLERANCE))

    def _planned(self, plan: Plan, until: Deadline) -> State:
        """A State of the GPUs of a plan. Every slice carries what it carries in the plan, as far as greedy filling
        finds room for it.
        """
        entries = objective_of(self.instance).entries_of(plan)
        slice_types = {(one.entry, one.profile): at for at, one in enumerate(self.problem.segments.slice_types)}
        rows = defaultdict[str, list[int]](list)
        for row, workload in enumerate(self.model.rows.tolist()):
            rows[self.instance.workloads[workload].name].append(row)
        rate_rps = np.maximum(self.model.rate_rps, LEAST_RPS).tolist()
        state, enough = self._empty(entries), self.tables.rows["least"]
        rest = state.rest.copy()
        left, replicas = rest["left"], rest["replicas"]
        self.slot.rows["factor"] = 1
        for gpu, planned in enumerate(plan.gpus):
            until.check()
            known = [one for one in planned.slices if one.replicas and (entries[gpu], one.profile) in slice_types]
            for place, piece in enumerate(known):
                state.rest["left"], state.rest["replicas"] = 0.0, np.maximum(replicas, enough)
                here = [row for one in piece.replicas for row in rows[one.workload]]
                state.rest["replicas"][here] = replicas[here]
                for one in piece.replicas:
                    rest_rps = one.rate_rps
                    for row in rows[one.workload]:
                        part = rest_rps / rate_rps[row]
                        part = part if part < left[row] - TOLERANCE else left[row]
                        state.rest["left"][row] += part
                        left[row] -= part
                        rest_rps = max(rest_rps - part * rate_rps[row], 0.0)
                state.slices["slice_type"][gpu, place] = slice_types[entries[gpu], piece.profile]
                furnished(self.tables, state, self.slot, gpu, place)
                left += state.rest["left"]
                replicas[here] = state.rest["replicas"][here]
        state.rest[:] = rest
        return state

    def _empty(self, entries: Sequence[int]) -> State:
        """A State of empty GPUs of some fleet entries."""
        return empty_state(self.tables, entries, self.model.rate_rps > 0)

    def _extended(self, state: State, entries: Sequence[int]) -> State:
        """A State with further, empty GPUs."""
        more = self._empty(entries)
        return State._make([*map(np.concatenate, zip(state[:-1], more[:-1], strict=True)), state.rest])

    def _open(self, state: State) -> None:
        """Try a State with further, empty GPUs of all entries in turn, if the fleet has more."""
        cheapest = sorted(self.useful, key=lambda entry: self.weights[entry])
        before = state.entry.tolist()
        entries, wanted = list(before), max(len(before) * SCHEDULE.further, len(before) + 1)
        while len(entries) < wanted and (room := [one for one in cheapest if self._left(entries, one) > 0]):
            entries.append(room[len(entries) % len(room)])
        if entries and (len(entries) > len(before) or not self.trials):
            self._try([self._extended(state, entries[len(before):])])

    def _left(self, entries: Sequence[int], entry: int) -> float:
        """The number of further GPUs that an entry has."""
        return self.counts[entry] - entries.count(entry)

    def _cheaper(self, state: State) -> Iterator[State]:
        """Yield cheaper states. In each, one GPU is removed, or a GPU of a cheaper fleet entry replaces it.

        The GPU is drawn at random, once for each fleet entry. States that cost less than the bound are left out.
        """
        entries = state.entry.tolist()
        cost = self.weights[entries].sum()
        for old in sorted(set(entries)):
            gpu = int(self.draw.choice(np.flatnonzero(state.entry == old)))
            for new in (NONE, *self.useful):
                saved = self.weights[old] - (self.weights[new] if new != NONE else 0)
                worthy = saved > 0 and len(entries) > (new == NONE) and cost - saved >= self.bound * (1 - TOLERANCE)
                if worthy and (new == NONE or self._left(entries, new) > 0):
                    yield without(self.tables, state, gpu, new)

    def _replicas(self, gpu: int, place: int) -> tuple[Replica, ...]:
        """The replicas of a shared slice."""
        assert self.best is not None
        held = [(way, part) for way, part in self.best.held[gpu, place].tolist() if way != NONE]
        grouped: dict[tuple[int, int], list[float]] = {}
        for at, (way, part) in enumerate(held):
            grouped.setdefault((way, at if self.tables.ways["apart"][way] else NONE), []).append(part)
        running = self.model.running(int(self.best.slices["setting"][gpu, place]), [way for way, _ in grouped])
        return tuple(self.model.replica(way, run, parts)
                     for ((way, _), parts), run in zip(grouped.items(), running, strict=True))


def assembled(problem: Problem, walks: Sequence[Walk], method: str) -> Plan:
    """The plan of the best GPUs of several walks, each of which planned other workloads of a problem."""
    shared: list[tuple[Replica, ...]] = []
    layouts = [layout for walk in walks for layout in walk.layouts(shared)]
    return assemble(problem.instance, problem.segments, layouts, method, shared)

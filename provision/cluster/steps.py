"""Orders the steps from what runs to a target, so that after every step all traffic is carried within its SLOs.

A unit is a slice with its replicas. New units may be made as soon as the old units in their place are gone; an old unit
may go as soon as the others carry the traffic of its workloads. Making what fits never hurts, so the only choice is
which old unit goes next: a search over the sets of old units that still stand, in which every set is looked at once.
Where it finds no order, units move to a spare GPU in between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from provision.models.base.fields import Count, Flag, Name, NonNegative, Record, Text
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.plans.plan import Replica, Slice

MOST_SETS = 20_000
"""The most sets of standing units that are looked at for one number of spare GPUs."""
SLACK = 1e-9
"""The part by which capacities may miss the traffic, for rounding."""


@dataclass(frozen=True, eq=False)
class Unit:
    """A slice of a GPU with its replicas, and the requests/s that it carries by workload. ``gpu`` is the index of the
    GPU; it is negative for a copy on a spare GPU.
    """

    gpu: int
    piece: Slice
    carries: tuple[tuple[str, float], ...] = field(default=())

    @property
    def label(self) -> str:
        """The slice in words."""
        return "whole GPU" if self.piece.profile == WHOLE else f"{self.piece.profile} at {self.piece.start}"


@dataclass
class Place:
    """A GPU of the cluster as the steps change it: its name, its type, its slices now and in the target."""

    name: str
    gpu: str
    now: Sequence[Unit]
    target: Sequence[Unit]


class Step(Record):
    """A step: what happens where, and the least part of any workload's traffic that is carried within its SLO after it,
    at most 1.
    """

    number: Count
    action: Name
    gpu: Text
    slice: Text
    workloads: tuple[Name, ...]
    carried: NonNegative


class Order(Record):
    """An order of steps: whether one was found, the GPUs that it needs for a time beyond those that stand, and whether
    it is proven that fewer do not suffice.
    """

    found: Flag
    steps: tuple[Step, ...] = ()
    spare_gpus: Count = 0
    spare_proven: Flag = True


def same_replicas(one: Iterable[Replica], other: Iterable[Replica]) -> bool:
    """Whether the replicas of one slice go on as those of another; their batch sizes and rates may differ."""
    keys = [Counter((each.workload, each.model, each.processes, each.sm_share) for each in replicas)
            for replicas in (one, other)]
    return keys[0] == keys[1]


def ordered(places: Sequence[Place], floors: Mapping[str, float], spares: Mapping[str, tuple[str, bool]],
            most_spares: int = 4) -> Order:
    """The order of steps with as few spare GPUs as possible.

    Parameters
    ----------
    places
        The GPUs, each with its units now and in the target.
    floors
        The requests/s of every workload that must be carried after every step.
    spares
        The GPUs that stand idle, now and in the target, and can be used in between: by name their type and whether
        MIG is on. Where none fits, a step names a spare GPU by its number alone.
    most_spares
        The most spare GPUs to try.
    """
    proven = True
    for number in range(most_spares + 1):
        search = _Search(places, floors, number)
        if search.run():
            return Order(found=True, steps=tuple(_named(search.done, places, spares, floors)), spare_gpus=number,
                         spare_proven=proven)
        proven = proven and number == 0 and not search.cut
    return Order(found=False, spare_gpus=most_spares, spare_proven=False)


class _Search:
    """The search for an order with a number of spare GPUs."""

    def __init__(self, places: Sequence[Place], floors: Mapping[str, float], spares: int) -> None:
        self.places, self.floors, self.spares, self.cut = places, floors, spares, False
        self.graph = _blocks(places)
        self.carried: defaultdict[str, float] = defaultdict(float)
        for place in places:
            for unit in place.now:
                for name, rps in unit.carries:
                    self.carried[name] += rps
        self.going = {unit for place in places for unit in place.now if unit in self.graph}
        self.coming = {unit for place in places for unit in place.target if unit in self.graph}
        self.done: list[tuple[str, Unit]] = []
        self.seen: set[frozenset[Unit]] = set()

    def run(self) -> bool:
        """Whether there is an order; it is then in ``done``."""
        standing, left = set(self.going), set(self.coming)
        lent: list[Unit] = []
        while not self._down(standing, left):
            self._give_back(lent)
            if len({unit.gpu for unit in lent}) >= self.spares or not self._lend(standing, left, lent):
                return False
        self._give_back(lent)
        return not lent

    def _down(self, standing: set[Unit], left: set[Unit]) -> bool:
        """Make what fits and let old units go until all is done; on failure the sets are as far as greed leads."""
        self._make(standing, left)
        path: list[tuple[Unit, set[Unit]]] = []
        choices = [self._candidates(standing, left)]
        best = (len(standing) + len(left), set(standing), set(left), list(self.done))
        while standing or left:
            unit = next(choices[-1], None)
            if unit is None or len(self.seen) > MOST_SETS:
                self.cut = self.cut or len(self.seen) > MOST_SETS
                choices.pop()
                if not path or self.cut:
                    _, now, later, done = best
                    self._reset(standing, left, now, later, done)
                    return False
                dropped, made = path.pop()
                self._undo(standing, left, dropped, made)
                continue
            self._take(unit, -1)
            standing.discard(unit)
            self.done.append(("stop", unit))
            path.append((unit, self._make(standing, left)))
            key = frozenset(standing)
            choices.append(iter(()) if key in self.seen else self._candidates(standing, left))
            self.seen.add(key)
            if len(standing) + len(left) < best[0]:
                best = (len(standing) + len(left), set(standing), set(left), list(self.done))
        return True

    def _candidates(self, standing: set[Unit], left: set[Unit]) -> Iterator[Unit]:
        """The old units that may go now, those first that are in the way of most new units."""
        able = [unit for unit in standing if all(self.carried[name] - rps >= self.floors.get(name, 0.0) * (1 - SLACK)
                                                 for name, rps in unit.carries)]
        frees = {unit: sum(1 for new in self.graph.successors(unit) if new in left) for unit in able}
        return iter(sorted(able, key=lambda unit: (-frees[unit], unit.gpu, unit.piece.start)))

    def _make(self, standing: set[Unit], left: set[Unit]) -> set[Unit]:
        """Make every new unit whose place is free."""
        made = {unit for unit in left if not any(old in standing for old in self.graph.predecessors(unit))}
        for unit in sorted(made, key=lambda one: (one.gpu, one.piece.start)):
            self._take(unit, 1)
            left.discard(unit)
            self.done.append(("start", unit))
        return made

    def _take(self, unit: Unit, sign: int) -> None:
        for name, rps in unit.carries:
            self.carried[name] += sign * rps

    def _undo(self, standing: set[Unit], left: set[Unit], dropped: Unit, made: set[Unit]) -> None:
        for unit in made:
            self._take(unit, -1)
            left.add(unit)
        self._take(dropped, 1)
        standing.add(dropped)
        del self.done[-1 - len(made):]

    def _reset(self, standing: set[Unit], left: set[Unit], now: set[Unit], later: set[Unit],
               done: list[tuple[str, Unit]]) -> None:
        """Return to an earlier state of the search.

        The old units that stand (``standing``) and the new units that are not yet started (``left``) become those of
        the earlier state, ``now`` and ``later``; both sets are changed in place. The requests/s carried are adapted,
        and the steps become ``done``.
        """
        for unit in now - standing:
            self._take(unit, 1)
        for unit in standing - now:
            self._take(unit, -1)
        for unit in left - later:
            self._take(unit, 1)
        for unit in later - left:
            self._take(unit, -1)
        standing.clear()
        standing.update(now)
        left.clear()
        left.update(later)
        self.done[:] = done

    def _lend(self, standing: set[Unit], left: set[Unit], lent: list[Unit]) -> bool:
        """Start copies of the old units of one GPU on a spare GPU: the GPU on which most new units wait."""
        waits = Counter(unit.gpu for unit in left)
        gpus = sorted({unit.gpu for unit in standing}, key=lambda gpu: -waits[gpu])
        if not gpus:
            return False
        for unit in sorted((one for one in standing if one.gpu == gpus[0]), key=lambda one: one.piece.start):
            copy = Unit(-1 - gpus[0], unit.piece, unit.carries)
            if copy.piece.replicas:
                lent.append(copy)
                self._take(copy, 1)
                self.done.append(("lend", copy))
        self.seen.clear()
        return True

    def _give_back(self, lent: list[Unit]) -> None:
        """Stop the copies on spare GPUs that the others can do without."""
        for unit in list(lent):
            if all(self.carried[name] - rps >= self.floors.get(name, 0.0) * (1 - SLACK) for name, rps in unit.carries):
                self._take(unit, -1)
                self.done.append(("return", unit))
                lent.remove(unit)


def _blocks(places: Sequence[Place]) -> nx.DiGraph:
    """The graph of old and new units that change; an arrow leads from an old unit to each new one that cannot be made
    while the old one stands.
    """
    graph = nx.DiGraph()
    for place in places:
        going = [old for old in place.now if not any(_goes_on(old, new) for new in place.target)]
        coming = [new for new in place.target if new.piece.replicas
                  and not any(_goes_on(old, new) for old in place.now)]
        graph.add_nodes_from(old for old in going if old.piece.replicas or not all(_together(place.gpu, old, new)
                                                                              for new in coming))
        graph.add_nodes_from(coming)
        graph.add_edges_from((old, new) for old in going if old in graph for new in coming
                             if not _together(place.gpu, old, new))
    return graph


def _goes_on(old: Unit, new: Unit) -> bool:
    return (old.piece.profile, old.piece.start) == (new.piece.profile, new.piece.start) and same_replicas(
        old.piece.replicas, new.piece.replicas)


def _together(gpu: str, old: Unit, new: Unit) -> bool:
    """Whether two slices can exist on a GPU together."""
    if WHOLE in (old.piece.profile, new.piece.profile):
        return False
    kind = gpu_type(gpu)
    names = [name for name, profile in kind.profiles.items() if profile.variant != "media"]
    if not {old.piece.profile, new.piece.profile} <= set(names):
        names = list(kind.profiles)
    state = tuple(sorted((one.piece.start, names.index(one.piece.profile)) for one in (old, new)))
    return state in geometry(kind, names).states


def _named(done: Sequence[tuple[str, Unit]], places: Sequence[Place], spares: Mapping[str, tuple[str, bool]],
           floors: Mapping[str, float]) -> Iterator[Step]:
    """Yield the steps in words, each with the least part of the traffic that is carried after it."""
    carried: defaultdict[str, float] = defaultdict(float)
    for place in places:
        for unit in place.now:
            for name, rps in unit.carries:
                carried[name] += rps
    lent: dict[int, str] = {}
    copies: Counter[int] = Counter()
    for number, (action, unit) in enumerate(done, start=1):
        sign = 1 if action in ("start", "lend") else -1
        for name, rps in unit.carries:
            carried[name] += sign * rps
        least = min((min(1.0, carried[name] / floor) for name, floor in floors.items() if floor > 0), default=1.0)
        if unit.gpu < 0:
            kind = places[-1 - unit.gpu].gpu, unit.piece.profile != WHOLE
            free = [name for name, what in spares.items() if what == kind and name not in lent.values()]
            where = lent.setdefault(unit.gpu, free[0] if free else f"a spare {kind[0]} ({len(lent) + 1})")
            copies[unit.gpu] += sign
            if not copies[unit.gpu]:
                del lent[unit.gpu]
        else:
            where = places[unit.gpu].name
        yield Step(number=number, action={"lend": "start for a time", "return": "stop"}.get(action, action), gpu=where,
                   slice=unit.label, workloads=tuple(dict.fromkeys(one.workload for one in unit.piece.replicas)),
                   carried=1.0 if least > 1 - 1e-6 else least)

"""Orders the steps from what runs to a target, so that after every step all traffic is carried within its SLOs.

A unit is a slice with its replicas. New units may be made as soon as the old units in their place are gone; an old unit
may go as soon as the others carry the traffic of its workloads. Making what fits never hurts, so the only choice is
which old unit goes next: a search over the sets of old units that still stand, in which every set is looked at once.
Where it finds no order, units move to a spare GPU in between.
"""

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
STARTS = ("start", "lend")
"""The steps after which more is carried."""
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
    """A step: what happens where. ``carried`` is the least part, at most 1, of any workload's traffic that is served
    within its SLO after the step.
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
    """The search for an order with a number of spare GPUs.

    ``done`` has the steps so far; what they lead to stands in ``standing`` (old units), ``left`` (new units that are
    not yet made), ``lent`` (copies on spare GPUs) and ``carried`` (requests/s by workload).
    """

    def __init__(self, places: Sequence[Place], floors: Mapping[str, float], spares: int) -> None:
        self.floors, self.spares, self.cut = floors, spares, False
        self.graph = _blocks(places)
        self.carried: defaultdict[str, float] = defaultdict(float)
        for place in places:
            for unit in place.now:
                self._count("start", unit, 1)
        self.standing = {unit for place in places for unit in place.now if unit in self.graph}
        self.left = {unit for place in places for unit in place.target if unit in self.graph}
        self.lent: set[Unit] = set()
        self.done: list[tuple[str, Unit]] = []
        self.seen: set[frozenset[Unit]] = set()

    def run(self) -> bool:
        """Whether there is an order; it is then in ``done``."""
        while not self._down():
            self._give_back()
            if len({unit.gpu for unit in self.lent}) >= self.spares or not self._lend():
                return False
        self._give_back()
        return not self.lent

    def _do(self, action: str, unit: Unit) -> None:
        """Take a step."""
        units = {"stop": self.standing, "start": self.left, "lend": self.lent, "return": self.lent}[action]
        (units.add if action == "lend" else units.discard)(unit)
        self._count(action, unit, 1)
        self.done.append((action, unit))

    def _undo(self, length: int) -> None:
        """Undo the last stops and starts, down to a number of steps."""
        while len(self.done) > length:
            action, unit = self.done.pop()
            (self.left if action == "start" else self.standing).add(unit)
            self._count(action, unit, -1)

    def _count(self, action: str, unit: Unit, sign: int) -> None:
        for name, rps in unit.carries:
            self.carried[name] += sign * rps if action in STARTS else -sign * rps

    def _down(self) -> bool:
        """Make what fits and let old units go until all is done; on failure the steps are as far as greed leads."""
        begun = len(self.done)
        self._make()
        best, fewest = list(self.done), len(self.standing) + len(self.left)
        path: list[int] = []
        choices = [self._candidates()]
        while self.standing or self.left:
            unit = next(choices[-1], None)
            if unit is None or len(self.seen) > MOST_SETS:
                self.cut = self.cut or len(self.seen) > MOST_SETS
                choices.pop()
                if path and not self.cut:
                    self._undo(path.pop())
                    continue
                self._undo(begun)
                for step in best[begun:]:
                    self._do(*step)
                return False
            path.append(len(self.done))
            self._do("stop", unit)
            self._make()
            key = frozenset(self.standing)
            choices.append(iter(()) if key in self.seen else self._candidates())
            self.seen.add(key)
            if len(self.standing) + len(self.left) < fewest:
                best, fewest = list(self.done), len(self.standing) + len(self.left)
        return True

    def _spared(self, unit: Unit) -> bool:
        """Whether the others carry what must be carried without a unit."""
        return all(self.carried[name] - rps >= self.floors.get(name, 0.0) * (1 - SLACK) for name, rps in unit.carries)

    def _candidates(self) -> Iterator[Unit]:
        """The old units that may go now, those first that are in the way of most new units."""
        able = filter(self._spared, self.standing)
        frees = {unit: sum(1 for new in self.graph.successors(unit) if new in self.left) for unit in able}
        return iter(sorted(frees, key=lambda unit: (-frees[unit], unit.gpu, unit.piece.start)))

    def _make(self) -> None:
        """Make every new unit whose place is free."""
        made = [unit for unit in self.left if not any(old in self.standing for old in self.graph.predecessors(unit))]
        for unit in sorted(made, key=lambda one: (one.gpu, one.piece.start)):
            self._do("start", unit)

    def _lend(self) -> bool:
        """Start copies of the old units of one GPU on a spare GPU: the GPU on which most new units wait. Units that are
        lent already get no further copies.
        """
        waits, copied = Counter(unit.gpu for unit in self.left), {-1 - unit.gpu for unit in self.lent}
        gpu = min({one.gpu for one in self.standing} - copied, key=lambda gpu: (-waits[gpu], gpu), default=None)
        if gpu is None:
            return False
        for unit in sorted((one for one in self.standing if one.gpu == gpu), key=lambda one: one.piece.start):
            if unit.piece.replicas:
                self._do("lend", Unit(-1 - gpu, unit.piece, unit.carries))
        self.seen.clear()
        return True

    def _give_back(self) -> None:
        """Stop the copies on spare GPUs that the others can do without."""
        for unit in sorted(self.lent, key=lambda one: (-one.gpu, one.piece.start)):
            if self._spared(unit):
                self._do("return", unit)


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
        sign = 1 if action in STARTS else -1
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

"""``provision defragment``: the least moves that free GPUs, free a machine, or make room for a profile, or the proof
that none do.

A move starts a slice's replicas in a new place and then destroys the slice: as many restarts as it has replicas, and
one destroyed slice. The question is one integer program, solved by CP-SAT: slices that may move stay or leave, as many
of each kind arrive as leave, slices on a GPU stand at starts that keep apart, and the least weight of moves is sought.
The order of the moves comes from `provision.cluster.steps`: slices are started before they are stopped, so that all
traffic is served in between.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from provision.cluster.state import Provenance, State, StateGpu, StateSlice
from provision.cluster.steps import Order, Place, Unit, ordered
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, NonNegative, Record, Text
from provision.models.hardware.gpu import WHOLE, gpu_type, no_profile
from provision.models.plans.plan import Replica, Slice

RESTART, DESTROY = 1, 1
"""The weights of a replica that is started anew, and of a slice that is destroyed."""
Spot = tuple[int, int]
"""Where a slice stands: the index of the GPU, and its start."""
Kind = tuple[str, bool, str]
"""What makes slices alike where they arrive: the type of the GPU, whether MIG is on, the profile."""


class Move(Record):
    """A slice that moves: its pods and workloads, its profile, and the places from and to which it moves."""

    pods: tuple[Text, ...]
    workloads: tuple[Name, ...]
    profile: Name
    before: Text
    after: Text


class Defragmentation(Record):
    """The answer: whether the goal can be reached, the moves, their weighted number with its bound, and the steps.

    ``status`` is ``optimal`` (no moves of less weight reach it, proven), ``feasible``, ``impossible`` (proven that no
    moves reach it) or ``unknown``. ``freed`` names the GPUs that stand empty then, ``room`` the place that the profile
    gets.
    """

    goal: Text
    status: Name
    moves: tuple[Move, ...] = ()
    weight: NonNegative | None = None
    bound: NonNegative | None = None
    freed: tuple[Text, ...] = ()
    room: Text = ""
    order: Order = Order(found=True)
    stays: dict[Text, Text] = Field(default={})
    provenance: dict[Name, Provenance] = Field(default={})


class SeatedSlice(NamedTuple):
    """A slice with pods: its GPU, and why it stays there; empty if it may move."""

    gpu: int
    slice: StateSlice
    stays: str


def defragment(state: State, free: int | None = None, free_node: str | None = None, admit: str | None = None,
               max_moves: int | None = None, keep: Sequence[str] = (), at_once: Mapping[str, int] | None = None,
               time_limit_s: float = 60.0) -> Defragmentation:
    """Find the fewest moves that reach a goal; exactly one goal is given.

    Parameters
    ----------
    state
        The state of a cluster or machine.
    free, free_node, admit
        The goal: so many GPUs stand empty; a machine stands empty; a slice of a profile, written PROFILE or
        GPUTYPE:PROFILE, can be created on some GPU.
    max_moves
        The most slices that may move; None for any number.
    keep
        Namespaces whose slices stay.
    at_once
        Disruption budgets: the most slices of a workload that may move; workloads not named have no limit.
    time_limit_s
        The seconds for the search.

    Raises
    ------
    InputError
        If not exactly one goal is given, it names something unknown, or ``max_moves`` is below 0.
    """
    if sum(one is not None for one in (free, free_node, admit)) != 1:
        raise InputError("defragment: give one of --free N, --free-node NODE and --admit PROFILE")
    _check_goal(state, free, free_node, admit)
    state.refuse_unknown(keep)
    if max_moves is not None and max_moves < 0:
        raise InputError(f"max_moves {max_moves}: should be 0 or more")
    seated = [SeatedSlice(at, one, _stays(state, gpu, one, keep))
              for at, gpu in enumerate(state.gpus) for one in gpu.slices if one.pods]
    stays = {f"{state.gpus[one.gpu].place}, {one.slice.profile}": one.stays for one in seated if one.stays}
    goal = f"there is room for {admit}" if admit else f"machine {free_node} stands empty" if free_node else (
        "1 GPU stands empty" if free == 1 else f"{free} GPUs stand empty")
    spots, found = _solved(state, seated, free, free_node, admit, max_moves, at_once or {}, time_limit_s)
    if spots is None:
        return Defragmentation(goal=goal, stays=stays, provenance=state.provenance, **found)
    moved = [(one, spot) for one, spot in zip(seated, spots, strict=True) if spot != (one.gpu, one.slice.start)]
    held = {at for at, _ in spots}
    return Defragmentation(
        goal=goal, stays=stays, moves=tuple(_move(state, one, spot) for one, spot in moved),
        freed=tuple(gpu.place for at, gpu in enumerate(state.gpus) if at not in held),
        order=_ordered(state, seated, spots), provenance=state.provenance, **found,
    )


def _check_goal(state: State, free: int | None, free_node: str | None, admit: str | None) -> None:
    nodes = sorted({gpu.node for gpu in state.gpus})
    if free is not None and not 1 <= free <= len(state.gpus):
        raise InputError(f"--free {free}: should be from 1 to {len(state.gpus)}, the GPUs that there are")
    if free_node is not None and free_node not in nodes:
        raise InputError(f"--free-node {free_node}: no machine has this name; use one of {', '.join(nodes[:20])}")
    if admit is not None:
        kind, profile = _wanted(admit)
        kinds = {gpu.gpu for gpu in state.gpus}
        if kind and kind not in kinds:
            raise InputError(f"--admit {admit}: no GPU is of type {kind}; there are {', '.join(sorted(kinds))}")
        if not any(profile == WHOLE or profile in gpu_type(one).profiles for one in kinds if kind in ("", one)):
            raise InputError(f"--admit {admit}: {no_profile(kind or min(kinds), profile)}")


def _wanted(admit: str) -> tuple[str, str]:
    """The pair (GPU type or nothing, profile) of ``--admit``."""
    kind, _, profile = admit.rpartition(":")
    return kind, profile


def _profiles(gpu: StateGpu) -> tuple[str, ...]:
    return tuple(gpu_type(gpu.gpu).profiles) if gpu.mig else (WHOLE,)


def _stays(state: State, gpu: StateGpu, piece: StateSlice, keep: Sequence[str]) -> str:
    """Why a slice stays; empty if it may move."""
    if piece.stays or any(pod.partition("/")[0] in keep for pod in piece.pods):
        return piece.stays or "its namespace is kept"
    if piece.profile not in _profiles(gpu):
        return f"a {gpu.gpu} has no {piece.profile}"
    return next((f"disruption budget {one.name} allows {one.allowed} evictions" for one in state.budgets
                 if len(set(one.pods) & set(piece.pods)) > one.allowed), "")


def _starts(gpu: StateGpu, profile: str) -> tuple[int, ...]:
    return gpu_type(gpu.gpu).profiles[profile].starts if gpu.mig else (0,)


def _solved(state: State, seated: Sequence[SeatedSlice], free: int | None, free_node: str | None, admit: str | None,
            max_moves: int | None, at_once: Mapping[str, int], limit_s: float
            ) -> tuple[list[Spot] | None, dict[str, Any]]:
    """Where each slice stands, None if that is not known; with the fields of the answer that the program tells.

    Slices of a kind are alike where they arrive: the program decides which of them leave, and at which spots so many
    arrive. None arrives where one of its kind stands, since that one could stay and the other go on to where it goes.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    takers: defaultdict[tuple[int, int | str], list[Any]] = defaultdict(list)
    compute: defaultdict[int, list[tuple[Any, int]]] = defaultdict(list)

    def chosen_at(name: str, at: int, start: int, profile: str) -> Any:
        """A choice that takes the memory slices, compute slices and media engines of a GPU."""
        choice, gpu = model.new_bool_var(f"{name}{profile}@{at},{start}"), state.gpus[at]
        shape = gpu_type(gpu.gpu).profiles[profile] if gpu.mig and profile != WHOLE else None
        for slot in range(start, start + shape.memory) if shape else (0,):
            takers[at, slot].append(choice)
        if shape:
            compute[at].append((choice, shape.compute))
        if shape and shape.variant == "media":
            takers[at, shape.variant].append(choice)
        return choice

    homes = [chosen_at(f"{number}: ", one.gpu, one.slice.start, one.slice.profile) for number, one in enumerate(seated)]
    stand = {(one.gpu, one.slice.start, one.slice.profile) for one in seated}
    leave: defaultdict[Kind, list[int]] = defaultdict(list)
    for number, one in enumerate(seated):
        if one.stays:
            model.add(homes[number] == 1)
        else:
            leave[state.gpus[one.gpu].gpu, state.gpus[one.gpu].mig, one.slice.profile].append(number)
    fixed = {at for at, gpu in enumerate(state.gpus) if not gpu.mig and any(one.pods and one.stays
                                                                            for one in gpu.slices)}
    arrive: dict[Kind, dict[Spot, Any]] = {}
    for kind, numbers in leave.items():
        arrive[kind] = {(at, start): chosen_at("new ", at, start, kind[2]) for at, gpu in enumerate(state.gpus)
                        if (gpu.gpu, gpu.mig) == kind[:2] and at not in fixed and gpu.node != free_node
                        for start in _starts(gpu, kind[2]) if (at, start, kind[2]) not in stand}
        model.add(sum(arrive[kind].values()) == sum(1 - homes[number] for number in numbers))
    room: dict[Spot, Any] = {}
    if admit is not None:
        wanted, profile = _wanted(admit)
        room = {(at, start): chosen_at("room ", at, start, profile) for at, gpu in enumerate(state.gpus)
                if wanted in ("", gpu.gpu) and profile in _profiles(gpu) for start in _starts(gpu, profile)}
        if not room:
            return None, {"status": "impossible"}
        model.add_exactly_one(room.values())
    empty = {at: model.new_bool_var(f"empty@{at}") for at in range(len(state.gpus))}
    for (at, _), taken in takers.items():
        model.add_at_most_one([*taken, empty[at]])
    for at, parts in compute.items():
        model.add(sum(choice * many for choice, many in parts) <= gpu_type(state.gpus[at].gpu).compute_slices)
    if free is not None:
        model.add(sum(empty.values()) >= free)
    if free_node is not None:
        for at, gpu in enumerate(state.gpus):
            if gpu.node == free_node:
                model.add(empty[at] == 1)
    if max_moves is not None:
        model.add(sum(1 - home for home in homes) <= max_moves)
    for workload, most in at_once.items():
        model.add(sum(1 - home for one, home in zip(seated, homes, strict=True)
                      if any(replica.workload == workload for replica in one.slice.replicas)) <= most)
    weights = [DESTROY + RESTART * max(len(one.slice.replicas), len(one.slice.pods)) for one in seated]
    model.minimize(sum(weight * (1 - home) for weight, home in zip(weights, homes, strict=True)))
    for home in homes:
        model.add_hint(home, 1)
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would kill the process
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None, {"status": "impossible"}
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, {"status": "unknown", "bound": solver.best_objective_bound}
    spots = [(one.gpu, one.slice.start) for one in seated]
    for kind, numbers in leave.items():
        gone = [number for number in numbers if not solver.boolean_value(homes[number])]
        there = [spot for spot, choice in arrive[kind].items() if solver.boolean_value(choice)]
        for number, spot in zip(gone, there, strict=True):
            spots[number] = spot
    place = next((f"{state.gpus[at].place} at {start}" for (at, start), choice in room.items()
                  if solver.boolean_value(choice)), "")
    return spots, {"status": "optimal" if status == cp_model.OPTIMAL else "feasible", "room": place,
                   "weight": solver.objective_value, "bound": solver.best_objective_bound}


def _move(state: State, one: SeatedSlice, spot: Spot) -> Move:
    profile, old, new = one.slice.profile, state.gpus[one.gpu], state.gpus[spot[0]]
    return Move(pods=one.slice.pods, workloads=tuple(dict.fromkeys(each.workload for each in one.slice.replicas)),
                profile=profile, before=f"{old.place} at {one.slice.start}", after=f"{new.place} at {spot[1]}")


def _ordered(state: State, seated: Sequence[SeatedSlice], spots: Sequence[Spot]) -> Order:
    """The order of the moves in which every pod's traffic is served all the time; each slice carries itself."""
    now: defaultdict[int, list[Unit]] = defaultdict(list)
    later: defaultdict[int, list[Unit]] = defaultdict(list)
    floors: defaultdict[str, float] = defaultdict(float)
    for number, (one, spot) in enumerate(zip(seated, spots, strict=True)):
        carries = ((one.slice.pods[0], 1.0),)
        floors[one.slice.pods[0]] += 1.0
        # A replica stands for pods of which only the place is known.
        replicas = one.slice.replicas or (Replica(workload=one.slice.pods[0], batch=1, rate_rps=0.0),)
        piece = Slice(profile=one.slice.profile, start=one.slice.start, replicas=replicas)
        moved = piece.model_copy(update={"start": spot[1]})
        stays = spot == (one.gpu, one.slice.start)
        now[one.gpu].append(Unit(one.gpu, piece, carries))
        later[spot[0]].append(now[one.gpu][-1] if stays else Unit(spot[0], _marked(moved, number), carries))
    for at, gpu in enumerate(state.gpus):
        now[at] += [Unit(at, Slice(profile=piece.profile, start=piece.start)) for piece in gpu.slices
                    if not piece.pods and gpu.mig]
    places = [Place(gpu.place, gpu.gpu, now[at], later[at]) for at, gpu in enumerate(state.gpus)]
    spares = {gpu.place: (gpu.gpu, gpu.mig) for at, gpu in enumerate(state.gpus)
              if not any(piece.pods for piece in gpu.slices) and not later[at]}
    return ordered(places, floors, spares)


def _marked(piece: Slice, number: int) -> Slice:
    """A slice with replicas unlike any that stands, so that a move into an equal slice is a move."""
    return piece.model_copy(update={"replicas": tuple(
        one.model_copy(update={"model": f"moved {number}"}) for one in piece.replicas)})

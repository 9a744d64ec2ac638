"""The running plan under a new demand: how each slice could go on, and to which states its GPUs can be brought.

A replica goes on without a restart as long as its workload, model, processes and SM share stay. Its batch size and rate
may change (InSS's Algorithm 1 changes nothing else). Any other change starts server processes. A GPU is brought to a
maximal state of its geometry: slices that are part of the state stay, and the others are destroyed.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from provision.formulations.pricing.rates import TooManyError
from provision.formulations.search.segments import Segments
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance

APART = "plan: a GPU holds slices that cannot stand together; provision verify says which"


class Key(NamedTuple):
    """What must not change if a running replica is to go on without a restart: its workload, its model (None for the
    workload's own), its number of processes, and its SM share.
    """

    workload: str
    model: str | None
    processes: int
    sm_share: float


class Going(NamedTuple):
    """A slice of the running plan: its slice type (-1 if the new problem has none like it) and the keys of its
    replicas, in order. Replicas that the new problem cannot have are left out.
    """

    slice_type: int
    keys: tuple[Key, ...]


class Turn(NamedTuple):
    """A state to which a GPU can be brought.

    ``kept`` are the positions of its slices that stay; ``new`` are places (start, slice type) for new slices.
    """

    kept: tuple[int, ...]
    new: tuple[tuple[int, int], ...]


GIVEN_BACK = Turn((), ())
"""The turn of a GPU that is given back."""


class Layout(NamedTuple):
    """What running GPUs may have in common: the fleet entry (-1 if the fleet has no such GPU), what each slice runs,
    and the turns that the GPUs can take. Where a GPU type has several entries with different prices, the entry is the
    first: the plan does not say which of its GPUs has which price.
    """

    entry: int
    going: tuple[Going, ...]
    turns: tuple[Turn, ...]


def key_of(one: Replica) -> Key:
    """The Key of a replica."""
    return Key(one.workload, one.model, one.processes, one.sm_share)


def first_entries(instance: Instance) -> dict[tuple[str, bool], list[int]]:
    """The fleet entries of every GPU type, with MIG and without: equal GPUs at different prices."""
    found: dict[tuple[str, bool], list[int]] = {}
    for e, entry in enumerate(instance.fleet):
        found.setdefault((entry.gpu, entry.partitioned), []).append(e)
    return found


def layouts_of(instance: Instance, segments: Segments, plan: Plan) -> list[Layout]:
    """The Layout of every GPU of a running plan.

    Raises
    ------
    InputError
        If the slices of a GPU cannot stand together.
    TooManyError
        If a replica names the workload's own model, as no plan of this package does: a pattern cannot say so.
    """
    types, found = first_entries(instance), list[Layout]()
    at = {(one.entry, one.profile): k for k, one in enumerate(segments.slice_types)}
    for gpu in plan.gpus:
        entry = types.get((gpu.gpu, gpu.mig), [-1])[0]
        going = tuple(Going(k, tuple(sorted(_keys(instance, piece.replicas if k >= 0 else ()), key=str)))
                      for piece in gpu.slices for k in (at.get((entry, piece.profile), -1),))
        found.append(Layout(entry, going, turns_of(instance, segments, entry, gpu.slices) if entry >= 0 else ()))
    return found


def _keys(instance: Instance, replicas: Sequence[Replica]) -> list[Key]:
    """The keys of replicas whose workloads still have their models."""
    there = [one for one in replicas if one.workload in instance.workload]
    if any(one.model == instance.workload[one.workload].model for one in there):
        raise TooManyError
    return [key_of(one) for one in there if instance.model_of(one) in instance.workload[one.workload].models]


def turns_of(instance: Instance, segments: Segments, entry: int, slices: Sequence[Slice]) -> tuple[Turn, ...]:
    """Every Turn of a GPU with some slices that no other one dominates; those that keep the most slices come first."""
    slice_types, places = segments.of_entry(entry), [(piece.start, piece.profile) for piece in slices]
    mig = instance.fleet[entry].partitioned
    if len(set(places)) < len(places) or not (mig or set(places) <= {(0, WHOLE)}):
        raise InputError(APART)
    if not mig:
        return (Turn((0,), ()),) if places else (Turn((), ((0, slice_types[0]),)),) if slice_types else ()
    known = {segments.slice_types[k].profile: k for k in slice_types}
    names = list(dict.fromkeys([*known, *(profile for _, profile in places)]))
    if not names:
        return ()
    shape = geometry(instance.fleet[entry].type, tuple(names))
    here = {(start, names.index(profile)): at for at, (start, profile) in enumerate(places)}
    if tuple(sorted(here)) not in shape.states:
        raise InputError(APART)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], Turn] = {}
    for state in sorted(shape.maximal_states):
        kept = tuple(sorted(here[place] for place in state if place in here))
        new = tuple((start, known[names[at]]) for start, at in state if (start, at) not in here and names[at] in known)
        found.setdefault((kept, tuple(sorted(k for _, k in new))), Turn(kept, new))
    counts = [(one, {*one.kept}, Counter(k for _, k in one.new)) for one in found.values()]
    best = [one for one, kept, new in counts
            if not any(one is not other and kept <= stays and new <= more for other, stays, more in counts)]
    return tuple(sorted(best, key=lambda turn: (-len(turn.kept), turn)))

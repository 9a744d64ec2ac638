"""Judges a MIG layout: whether the instances fit on one GPU together, where each may start, what still fits, and in
which order they must be created.

Schedulers and the driver place instances one after another. *First fit* takes the lowest start that is free, and never
moves an instance; a legal layout may therefore be out of its reach in one order of creation and not in another (NVIDIA
documents this for 3g instances; see NVIDIA/k8s-test-infra issue 886).
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from pydantic import Field

from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Record, Text
from provision.models.hardware.geometry import Geometry, State, contains, geometry
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type, no_profile


class Layout(Record):
    """The answer about a MIG layout. Instances are pairs (profile, start), where ``start`` is a memory slice.

    Attributes
    ----------
    gpu, profiles, on
        What was asked: the GPU type, the profiles to create, and the instances that exist.
    legal
        Whether all of them can exist together while those in ``on`` stay where they are.
    reason
        Why they cannot, and what would; empty if they can.
    instances
        The new instances by start: where first fit puts them in ``order``, else where most room is left for others.
    starts
        For each profile asked for, the starts that it has in some legal layout.
    further
        For each profile of the GPU type, the starts at which one more instance fits beside ``instances``.
    order
        An order of ``profiles`` in which first fit creates them all; empty if there is none.
    as_given
        Whether first fit creates them all in the order in which they were asked for.
    """

    gpu: Text
    profiles: tuple[Text, ...]
    on: tuple[tuple[Text, int], ...]
    legal: Flag
    reason: Text = ""
    instances: tuple[tuple[Text, int], ...] = ()
    starts: dict[Text, tuple[int, ...]] = Field(default={})
    further: dict[Text, tuple[int, ...]] = Field(default={})
    order: tuple[Text, ...] = ()
    as_given: Flag = False


def layout(gpu: str, profiles: Sequence[str], on: Sequence[str] = ()) -> Layout:
    """Judge whether MIG instances fit on one GPU.

    Parameters
    ----------
    gpu
        The name of a GPU type, such as ``a100-80gb``.
    profiles
        The profiles of the instances to create, in the order of creation.
    on
        Instances that exist and stay, each as ``PROFILE@START``.

    Raises
    ------
    InputError
        If the GPU type or a profile is unknown, the type has no MIG, or the instances in ``on`` cannot exist together.
    """
    kind = gpu_type(gpu)
    if kind.mig is None:
        raise InputError(f"{gpu}: has no MIG; use a type for which `provision gpus` lists profiles")
    for profile in profiles:
        _check_profile(kind, profile)
    standing = tuple(_standing(kind, text) for text in on)
    shape = geometry(kind, kind.profiles)
    index = {name: number for number, name in enumerate(kind.profiles)}
    begun: State = tuple(sorted((start, index[name]) for name, start in standing))
    if begun not in shape.states:
        raise InputError(f"--on {' '.join(on)}: these instances cannot exist together on {gpu}; correct the starts")
    wanted = [index[profile] for profile in profiles]
    counts = tuple(have + wanted.count(number) for number, have in enumerate(shape.counts(begun)))
    reachable = shape.reachable(begun)
    ends = [state for state in reachable if shape.counts(state) == counts]
    asked = {"gpu": gpu, "profiles": tuple(profiles), "on": standing}
    if not ends:
        return Layout(**asked, legal=False, reason=_reason(kind, shape, reachable, counts, standing))
    names = tuple(kind.profiles)
    order = _order(shape, begun, Counter(wanted))
    by_first_fit = _first_fit(shape, begun, order) if order else None
    best = by_first_fit or max(sorted(ends), key=lambda state: len(shape.reachable(state)))
    created = sorted(set(best) - set(begun), key=lambda one: one[0])
    starts = {names[one]: tuple(sorted({start for end in ends for start, other in end
                                        if other == one and (start, other) not in begun})) for one in set(wanted)}
    grown = [next(iter(set(larger) - set(best))) for larger in shape.moves[best]]
    further = {name: tuple(sorted(start for start, other in grown if names[other] == name)) for name in names}
    return Layout(
        **asked, legal=True, instances=tuple((names[one], start) for start, one in created), starts=starts,
        further={name: free for name, free in further.items() if free}, order=tuple(names[one] for one in order or ()),
        as_given=_first_fit(shape, begun, wanted) is not None,
    )


def _check_profile(kind: GpuType, profile: str) -> None:
    if profile == WHOLE or profile not in kind.profiles:
        raise InputError(no_profile(kind.name, profile))


def _standing(kind: GpuType, text: str) -> tuple[str, int]:
    """The pair (profile, start) that a text such as ``4g.40gb@0`` names."""
    profile, _, start = text.partition("@")
    _check_profile(kind, profile)
    starts = kind.profiles[profile].starts
    if start not in map(str, starts):
        raise InputError(f"--on {text}: write PROFILE@START; {profile} starts at {', '.join(map(str, starts))}")
    return profile, int(start)


def _grown(shape: Geometry, state: State, profile: int) -> State | None:
    """The state after first fit has created one more instance of a profile; None if it finds no start for it."""
    larger = [one for one in shape.moves[state] if shape.counts(one)[profile] > shape.counts(state)[profile]]
    return min(larger, key=lambda one: next(iter(set(one) - set(state)))[0], default=None)


def _first_fit(shape: Geometry, begun: State, wanted: Sequence[int]) -> State | None:
    """The state after first fit has created the profiles in this order; None if one finds no start."""
    state: State | None = begun
    for profile in wanted:
        state = None if state is None else _grown(shape, state, profile)
    return state


def _order(shape: Geometry, begun: State, left: Counter[int]) -> list[int] | None:
    """An order of the profiles in which first fit creates them all, the largest profiles as early as possible; None if
    there is none.
    """
    largest_first = sorted(left, key=lambda one: -shape.profiles[one].memory)

    @cache
    def completed(state: State, rest: tuple[int, ...]) -> list[int] | None:
        """The order of so many instances of each profile after a state."""
        for at, profile in enumerate(largest_first):
            if rest[at] and (larger := _grown(shape, state, profile)) is not None:
                later = completed(larger, (*rest[:at], rest[at] - 1, *rest[at + 1:]))
                if later is not None:
                    return [profile, *later]
        return None if any(rest) else []

    return completed(begun, tuple(left[profile] for profile in largest_first))


def _reason(kind: GpuType, shape: Geometry, reachable: set[State], counts: tuple[int, ...],
            on: Sequence[tuple[str, int]]) -> str:
    """Why no state has these counts of profiles, and the most of them that can exist together."""
    mig = kind.mig
    assert mig is not None
    used = [(profile, number) for profile, number in zip(shape.profiles, counts, strict=True) if number]
    compute, memory = (sum(number * getattr(profile, part) for profile, number in used)
                       for part in ("compute", "memory"))
    many = [f"{number} of {profile.name}, of which a GPU has at most {profile.max}" for profile, number in used
            if number > profile.max]
    if many:
        why = many[0]
    elif compute > mig.compute_slices:
        why = f"{compute} compute slices, and the GPU has {mig.compute_slices}"
    elif memory > mig.memory_slices:
        why = f"{memory} memory slices, and the GPU has {mig.memory_slices}"
    else:
        places = "; ".join(f"{profile.name} starts at {', '.join(map(str, profile.starts))}" for profile, _ in used)
        stay = f", and {', '.join(f'{name}@{start}' for name, start in on)} stays" if on else ""
        why = f"no starts that keep apart: {places}{stay}"
    within = [shape.counts(state) for state in reachable if contains(counts, shape.counts(state))]
    most = max(within, key=lambda one: (sum(one), one))
    some = ", ".join(f"{number} x {profile.name}" for profile, number in zip(shape.profiles, most, strict=True)
                     if number)
    return f"{why}; together fit {some or 'none'}"

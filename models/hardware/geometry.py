"""Derives MIG geometry from a GPU type's placement table alone. A *state* is a set of MIG instances that may exist on
one GPU together: their memory slices do not overlap, and at most one of them has media engines. A *partition* is a
tuple with the number of instances of every profile in a state, whatever their positions.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property

from provision.models.hardware.gpu import GpuType

State = tuple[tuple[int, int], ...]
"""Sorted pairs (start, profile index), one for each instance."""
Partition = tuple[int, ...]
"""The number of instances of each profile."""


class Geometry:
    """The sets of MIG instances that fit on one GPU together, and their positions.

    Parameters
    ----------
    gpu
        The GPU type.
    profiles
        The names of the profiles to consider, in the order in which partitions count them.
    """

    def __init__(self, gpu: GpuType, profiles: Iterable[str]) -> None:
        self.gpu = gpu
        self.profiles = tuple(gpu.profiles[name] for name in profiles)

    @cached_property
    def moves(self) -> dict[State, tuple[State, ...]]:
        """All states, including the empty state, each with the states that have one more instance."""
        moves: dict[State, tuple[State, ...]] = {}
        frontier: list[State] = [()]
        while frontier:
            moves |= {state: tuple(self._grow(state)) for state in frontier}
            frontier = list({larger for state in frontier for larger in moves[state]})
        return moves

    @cached_property
    def states(self) -> frozenset[State]:
        """All states, including the empty state, as sorted tuples of (start, profile index)."""
        return frozenset(self.moves)

    @cached_property
    def maximal_states(self) -> frozenset[State]:
        """The states to which no instance can be added."""
        return frozenset(state for state, further in self.moves.items() if not further)

    def reachable(self, state: State) -> set[State]:
        """The state itself and those that adding instances makes of it."""
        found, frontier = {state}, {state}
        while frontier:
            frontier = {larger for one in frontier for larger in self.moves[one]}
            found |= frontier
        return found

    @cached_property
    def placements(self) -> dict[Partition, State]:
        """Every feasible partition, with a state that realises it. If several states realise a partition, the state is
        chosen from which the most other partitions can be reached by adding instances. Therefore a single 3g instance
        on an A100 starts at memory slice 4, not at 0.
        """
        best: dict[Partition, tuple[int, State]] = {}
        for state in sorted(self.states):
            counts = self.counts(state)
            room = len(self._completions(state))
            if counts not in best or room > best[counts][0]:
                best[counts] = (room, state)
        return {counts: state for counts, (_, state) in best.items()}

    @cached_property
    def maximal_partitions(self) -> tuple[Partition, ...]:
        """The partitions of the maximal states, in descending order."""
        return tuple(sorted({self.counts(state) for state in self.maximal_states}, reverse=True))

    @cached_property
    def undominated_partitions(self) -> tuple[Partition, ...]:
        """The maximal partitions that no other maximal partition contains."""
        return tuple(one for one in self.maximal_partitions
                     if not any(one != other and contains(other, one) for other in self.maximal_partitions))

    def counts(self, state: State) -> Partition:
        """The partition of a state."""
        return tuple(sum(index == kind for _, index in state) for kind in range(len(self.profiles)))

    def place(self, counts: Sequence[int]) -> State | None:
        """A state that realises the partition, or None if the profiles do not fit together."""
        return self.placements.get(tuple(counts))

    def state_of(self, counts: Sequence[int]) -> State:
        """The state that ``place`` gives for a partition that is feasible."""
        return self.placements[tuple(map(int, counts))]

    def _grow(self, state: State) -> Iterator[State]:
        """Yield every state that one more MIG instance makes of this state."""
        taken = {slot for start, kind in state for slot in range(start, start + self.profiles[kind].memory)}
        compute = sum(self.profiles[kind].compute for _, kind in state)
        media = self.gpu.with_media(self.profiles[kind].name for _, kind in state)
        for kind, profile in enumerate(self.profiles):
            if media and profile.variant == "media":
                continue
            if sum(kind == other for _, other in state) == profile.max:
                continue
            if compute + profile.compute > self.gpu.compute_slices:
                continue
            for start in profile.starts:
                if taken.isdisjoint(range(start, start + profile.memory)):
                    yield tuple(sorted((*state, (start, kind))))

    def _completions(self, state: State) -> set[Partition]:
        """The partitions that can be reached from a state by adding instances."""
        return {self.counts(other) for other in self.reachable(state)}


def contains(larger: Sequence[int], smaller: Sequence[int]) -> bool:
    """Whether the partition ``larger`` has at least as many instances of every profile as ``smaller``."""
    return all(a >= b for a, b in zip(larger, smaller, strict=True))


def geometry(gpu: GpuType, profiles: Iterable[str] | None = None) -> Geometry:
    """The geometry of a GPU type over the named profiles, by default over its plain profiles.

    Partitions count profiles in the order of the names. Each geometry is derived once and then cached.
    """
    if profiles is None:
        profiles = tuple(name for name, profile in gpu.profiles.items() if profile.variant == "plain")
    return _derived(gpu, tuple(profiles))


_derived = cache(Geometry)

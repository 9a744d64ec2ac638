"""Best-fit packing of segments onto the MIG GPUs of one fleet entry, by exact geometry."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol, TypeVar

from provision.formulations.search.assemble import Layout
from provision.formulations.search.segments import Segments
from provision.models.hardware.geometry import Partition
from provision.models.problem.instance import Instance


class HoldsSegments(Protocol):
    """A GPU with segments, (slice type, workload)."""

    @property
    def segments(self) -> Sequence[tuple[int, int]]:
        """The segments on the GPU."""
        ...


AnyGpu = TypeVar("AnyGpu", bound=HoldsSegments)


class Packs(Protocol[AnyGpu]):
    """Puts segments on GPUs and removes them."""

    gpus: list[AnyGpu]

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on a GPU."""
        ...

    def remove(self, gpu: AnyGpu, segment: tuple[int, int]) -> None:
        """Remove a segment from a GPU."""
        ...


class PackedGpu:
    """A GPU that is being filled: its number, the number of its slices of every type (``state``), and its (slice type,
    workload) segments.
    """

    def __init__(self, number: int, state: Partition) -> None:
        self.number, self.state = number, state
        self.segments: list[tuple[int, int]] = []


class Packing:
    """GPUs in the order in which they were opened; a segment is put on the fullest GPU that has room for it.

    Parameters
    ----------
    instance, segments
        The instance, whose only fleet entry has MIG, and its segments.
    admits
        A function that tells whether segments may share a GPU, given the list of their sizes in GPCs; by default they
        always may.
    """

    def __init__(self, instance: Instance, segments: Segments,
                 admits: Callable[[list[int]], bool] = lambda sizes: True) -> None:
        self.gpus: list[PackedGpu] = []
        size = [slice_type.compute for slice_type in segments.slice_types]
        geometry = segments.geometry(instance, 0)
        states = geometry.placements if geometry else {}
        held = {state: [c for c, n in zip(size, state, strict=True) for _ in range(n)] for state in states}
        self._used = {state: sum(sizes) for state, sizes in held.items() if admits(sizes)}
        self._empty: Partition = (0,) * len(size)
        self._hosts = [self._levels(slice_type) for slice_type in range(len(size))]
        self._queues: dict[Partition, list[int]] = {state: [] for state in self._used}

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on the fullest GPU with room for it, the first among equals; if there is none, on a new GPU."""
        gpu = self._fullest(slice_type) or self._open()
        self._move(gpu, _changed(gpu.state, slice_type, 1))
        gpu.segments.append((slice_type, workload))

    def remove(self, gpu: PackedGpu, segment: tuple[int, int]) -> None:
        """Remove a segment from a GPU, which stays open for other segments."""
        self._move(gpu, _changed(gpu.state, segment[0], -1))
        gpu.segments.remove(segment)

    def layouts(self) -> list[Layout]:
        """The layouts of the GPUs in use."""
        return [Layout(0, tuple(gpu.segments)) for gpu in self.gpus if gpu.segments]

    def _levels(self, slice_type: int) -> list[list[Partition]]:
        """The states with room for one more slice of a type, in groups of equal use, fullest first."""
        levels: dict[int, list[Partition]] = {}
        for state, amount in self._used.items():
            if _changed(state, slice_type, 1) in self._used:
                levels.setdefault(amount, []).append(state)
        return [levels[amount] for amount in sorted(levels, reverse=True)]

    def _fullest(self, slice_type: int) -> PackedGpu | None:
        for states in self._hosts[slice_type]:
            numbers = [queue[0] for state in states if (queue := self._queues[state]) and self._first(state)]
            if numbers:
                return self.gpus[min(numbers)]
        return None

    def _first(self, state: Partition) -> bool:
        """Whether some GPU is in a state.

        The queue of a state may still hold GPUs that have left the state. Those at its front are removed, so that its
        first entry is a GPU in the state.
        """
        queue = self._queues[state]
        while queue and self.gpus[queue[0]].state != state:
            heappop(queue)
        return bool(queue)

    def _move(self, gpu: PackedGpu, state: Partition) -> None:
        gpu.state = state
        heappush(self._queues[state], gpu.number)

    def _open(self) -> PackedGpu:
        gpu = PackedGpu(len(self.gpus), self._empty)
        self.gpus.append(gpu)
        return gpu


def _changed(state: Partition, slice_type: int, change: int) -> Partition:
    """A state after a change of its number of slices of one type."""
    return (*state[:slice_type], state[slice_type] + change, *state[slice_type + 1 :])

"""GPUs whose segments keep their starts, while other segments are removed and new segments are put beside them."""

from dataclasses import dataclass, field

from provision.formulations.search.segments import Segments
from provision.models.hardware.geometry import Geometry, State

Segment = tuple[int, int]
"""The indices (slice type, workload) of a segment."""


@dataclass
class StandingGpu:
    """A GPU and its segments, by the start of their slices."""

    at: dict[int, Segment] = field(default_factory=dict)

    @property
    def segments(self) -> list[Segment]:
        """The segments on the GPU, in the order of their starts."""
        return [self.at[start] for start in sorted(self.at)]


class Standing:
    """GPUs whose segments keep their starts; a new segment is put on the fullest GPU with room for it."""

    def __init__(self, segments: Segments, geometry: Geometry, gpus: list[StandingGpu]) -> None:
        self.slice_types, self.geometry, self.gpus = segments.slice_types, geometry, gpus

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on the fullest GPU with room for it, the first among equals; if there is none, on a new GPU."""
        for gpu in sorted(self.gpus, key=self._left):
            start = self._start(gpu, slice_type)
            if start is not None:
                break
        else:
            gpu = StandingGpu()
            self.gpus.append(gpu)
            start = self._start(gpu, slice_type)
        assert start is not None, "an empty GPU takes any segment"
        gpu.at[start] = slice_type, workload

    def remove(self, gpu: StandingGpu, segment: Segment) -> None:
        """Remove a segment from a GPU, which stays open for other segments."""
        del gpu.at[next(start for start, one in gpu.at.items() if one == segment)]

    def _left(self, gpu: StandingGpu) -> int:
        return -sum(self.slice_types[slice_type].compute for slice_type, _ in gpu.at.values())

    def _start(self, gpu: StandingGpu, slice_type: int) -> int | None:
        """The start of a slice on a GPU that leaves the most room for further slices; None if there is no room."""
        sizes = [self.slice_types[one].compute for one, _ in gpu.segments] + [self.slice_types[slice_type].compute]
        if sizes.count(3) > 1:
            return None
        now: State = tuple(sorted((start, one) for start, (one, _) in gpu.at.items()))
        after = [state for state in self.geometry.moves[now] if self._added(now, state)[1] == slice_type]
        if not after:
            return None
        return self._added(now, max(after, key=lambda state: len(self.geometry.moves[state])))[0]

    @staticmethod
    def _added(now: State, after: State) -> tuple[int, int]:
        [one] = set(after) - set(now)
        return one

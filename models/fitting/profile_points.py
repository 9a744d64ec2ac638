"""The measured points of one DNN's profile, as arrays of the same length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.hardware.gpu import GpuType

Key = tuple[str, int, int]
"""The name of a profile, the batch size and the number of processes."""
Indices = Bools | Ints | Sequence[int]
"""A selection of points: a mask over all points, or the indices of the selected points."""


class ProfilePoints(NamedTuple):
    """Measured points: batch size, number of processes, slice and batch latency of each.

    The processes share a slice with ``compute_slices`` GPCs and ``slice_memory_gib`` GiB of memory. ``latency_ms`` is
    NaN if they ran out of memory.
    """

    batch: Floats
    processes: Floats
    compute_slices: Floats
    slice_memory_gib: Floats
    latency_ms: Floats

    @property
    def measured(self) -> Bools:
        """(points,), the mask of the points that have a latency."""
        return ~np.isnan(self.latency_ms)

    @property
    def where(self) -> tuple[Floats, Floats, Floats]:
        """(batch, processes, compute_slices), each (points,): the inputs of all latency models."""
        return self.batch, self.processes, self.compute_slices

    def take(self, which: Indices) -> ProfilePoints:
        """The points that a mask or indices select."""
        return ProfilePoints(*(axis[which] for axis in self))


def profile_points(gpu: GpuType, keys: Iterable[tuple[str, int, int]], latency_ms: Iterable[float]) -> ProfilePoints:
    """The ProfilePoints on slices of a GPU type, from (profile name, batch, processes) keys and latencies in ms."""
    profiles, batch, processes = zip(*keys, strict=True)
    return ProfilePoints(
        np.array(batch, float),
        np.array(processes, float),
        np.array([gpu.slice_compute(profile) for profile in profiles], float),
        np.array([gpu.slice_memory_gib(profile) for profile in profiles]),
        np.array([*latency_ms], float),
    )

"""Measured points of one DNN's profile, as arrays of one length."""

from typing import NamedTuple

import numpy as np


class ProfilePoints(NamedTuple):
    """What each point was measured at, and its batch latency.

    ``processes`` share a slice of ``compute_slices`` GPCs and ``slice_memory_gib``. ``latency_ms`` is NaN where the
    processes ran out of memory.
    """

    batch: np.ndarray
    processes: np.ndarray
    compute_slices: np.ndarray
    slice_memory_gib: np.ndarray
    latency_ms: np.ndarray

    @property
    def measured(self):
        """Mask of the points that have a latency."""
        return ~np.isnan(self.latency_ms)

    @property
    def where(self):
        """Batch, processes and compute slices, the coordinates of all latency models."""
        return self.batch, self.processes, self.compute_slices

    def take(self, which):
        """The points of a mask or of indices."""
        return ProfilePoints(*(axis[which] for axis in self))


def profile_points(gpu, keys, latency_ms):
    """ProfilePoints of slices of a GpuType, from (profile name, batch, processes) and their latencies."""
    profiles, batch, processes = zip(*keys, strict=True)
    return ProfilePoints(
        np.array(batch, float),
        np.array(processes, float),
        np.array([gpu.slice_compute(profile) for profile in profiles], float),
        np.array([gpu.slice_memory_gib(profile) for profile in profiles]),
        np.array([*latency_ms], float),
    )

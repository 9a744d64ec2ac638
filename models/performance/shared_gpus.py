"""What replicas take of a whole GPU that they share under MPS: memory, and SM shares.

Memory is measured or estimated per model and batch size, or unknown. SM shares are multiples of a unit, which
floating-point numbers only approximate.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, PrivateAttr, model_validator

from provision.models.base.arrays import Bools, Floats
from provision.models.base.fields import Positive, PositiveCount, Record, empty
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.operating_points import Member, PerformanceData

MIB_PER_GIB = 1024
NEVER_MS = 1e12
"""The time in ms of a batch that may not run; it is finite so that arithmetic with it gives no NaN."""

MemoryPoint = tuple[PositiveCount, Positive]
"""A batch size, and the memory of one process at that batch size in MiB, weights and CUDA context included."""


class MemoryStated(Record):
    """The memory of one process of a model: ``memory_mib`` by batch size, empty if unknown.

    ``memory_estimated`` marks numbers that were not measured. Between two stated batch sizes memory is interpolated
    linearly. Below the smallest stated batch size, memory is as at the smallest. Above the largest, memory grows in
    proportion to the batch size, which overestimates it, since weights do not grow.
    """

    memory_mib: Annotated[tuple[MemoryPoint, ...], Field(exclude_if=empty)] = ()
    memory_estimated: Annotated[bool, Field(exclude_if=empty)] = False

    @model_validator(mode="after")
    def _grows(self) -> Self:
        for (first, less), (second, more) in pairwise(self.memory_mib):
            if second <= first or more < less:
                raise ValueError(f"memory_mib: batch {second} with {more:g} MiB stands behind {first} with {less:g}; "
                                 "batch sizes must grow, and memory must not fall")
        if self.memory_estimated and not self.memory_mib:
            raise ValueError("memory_estimated: there is no memory_mib that it could be said of")
        return self

    def memory_gib(self, batch: int) -> float | None:
        """The memory of a process with batches of this size, in GiB; None if unknown."""
        if not self.memory_mib:
            return None
        sizes, mib = zip(*self.memory_mib, strict=True)
        return max(1.0, batch / sizes[-1]) * float(np.interp(batch, sizes, mib)) / MIB_PER_GIB


class SharedMemoryData(PerformanceData):
    """Base of performance data for whole GPUs that replicas share, whose models may state their memory."""

    _within_share: bool = PrivateAttr(default=False)

    @property
    def stated(self) -> Mapping[str, MemoryStated]:
        """The models by name. A model may state its memory."""
        raise NotImplementedError

    @property
    def states_memory(self) -> bool:
        """Whether the memory of some model is known."""
        return any(one.memory_mib for one in self.stated.values())

    def within_share(self) -> Self:
        """A copy of the data for a search that takes only replicas whose share of the memory is within their SM share.

        Replicas whose SM shares fit on a GPU together then also fit into its memory. Predictions do not change.
        """
        narrow = self.model_copy()
        narrow._within_share = True
        return narrow

    def crowding(self, model: str, batch: ArrayLike, sm_share: ArrayLike) -> Bools:
        """Whether replicas at these batch sizes and SM shares need too much memory to be planned, even alone on a GPU.

        The arrays broadcast against each other; the result has the broadcast shape.
        """
        batch, sm_share = np.broadcast_arrays(batch, sm_share)
        if not self.stated[model].memory_mib:
            return np.zeros(batch.shape, bool)
        sizes, at = np.unique(batch, return_inverse=True)
        gib = np.array([self.stated[model].memory_gib(int(size)) for size in sizes])[at.reshape(batch.shape)]
        part = sm_share if self._within_share else 1.0
        return np.asarray(gib > part * gpu_type(self.gpu).memory_gib)


DIGITS = 12
"""The decimal digits of an SM share in a plan."""


def units_of(unit_share: float) -> int:
    """The number of SM share units of a whole GPU."""
    return math.floor(1 / unit_share * (1 + TOLERANCE))


def share_of_units(unit_share: float, units: float) -> float:
    """The SM share of some units: at most a whole GPU, without floating-point noise, and still on the grid of a unit
    like 1/17."""
    return min(round(unit_share * units, DIGITS), 1.0)


def shares_of(unit_share: float) -> Floats:
    """The SM shares of 1, 2, ... units up to a whole GPU, each as ``share_of_units`` gives it."""
    return np.minimum(np.round(unit_share * np.arange(1, units_of(unit_share) + 1), DIGITS), 1.0)


def grid(unit_share: float, max_batch: int) -> tuple[np.ndarray, np.ndarray]:
    """All combinations of batch sizes up to ``max_batch`` and SM shares.

    Returns
    -------
    tuple of two arrays (batches, units)
        The batch size and the SM share of every combination.
    """
    shares = unit_share * np.arange(1, units_of(unit_share) + 1)
    batch, sm_share = np.meshgrid(np.arange(1, max_batch + 1), shares, indexing="ij")
    return batch, sm_share


def on_grid(member: Member, unit_share: float, max_batch: int) -> bool:
    """Whether a member has one process, a batch size up to ``max_batch``, and an SM share that is a multiple of the
    unit."""
    units = member.sm_share / unit_share
    return (
        member.processes == 1
        and member.batch <= max_batch
        and round(units) >= 1
        and abs(units - round(units)) < units * TOLERANCE
    )

"""Predicts how fast processes on one GPU slice serve batches, by a closed queueing network per DNN.

This is the machine-repairman model: every process alternates between work on the host and work on the slice, and the
slice is shared by all processes. A batch takes at least as long as with one process alone, and at least as long as the
slice needs to work on one batch of every process. If these two lower bounds are close, processes also queue. The
queueing time follows Schweitzer's approximate mean value analysis, weighted by a coefficient per DNN (``queueing``).

The upper bounds on batch times beside busy neighbours hold for every course of events, not just on average. If the
analysis takes such a bound for the batch time of a replica, the replica is a queue of its own: its latency no longer
depends on its neighbours.
"""

import math
from types import SimpleNamespace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from provision.models.base.arrays import Floats, Ints

OVERLAP_SHARPNESS = 5
"""The order of the norm that combines the launch time and the compute time of a batch, which overlap. The result is
close to the larger of the two, and 15 % above it when they are equal.
"""


class ClosedNetwork(BaseModel):
    """The coefficients of one DNN on one GPU type.

    A slice with one GPC takes ``gpu_fixed_ms + gpu_per_item_ms * batch**batch_exponent`` for a batch. On a larger slice
    the fraction ``unscaled_share`` of this time stays the same. Of the rest, the fraction ``bandwidth_share`` is
    divided by the slice's memory slices and the remainder by its GPCs.

    Attributes
    ----------
    launch_ms
        The time in which a single process launches all kernels of a batch; it overlaps with GPU work.
    launch_contention
        The fraction by which each further process lengthens launching.
    host_per_item_ms
        The host work per request that overlaps with nothing, such as copying the request to the GPU.
    gpu_fixed_ms, gpu_per_item_ms, batch_exponent
        The coefficients of GPU work on one GPC, as above.
    unbatched_ratio
        The factor on the GPU work of batch size 1, for which libraries choose other kernels.
    bandwidth_share, unscaled_share
        The fractions described above.
    queueing
        0 if processes alternate so regularly that they wait only if the slice is saturated; 1 for the exponential
        service times of the textbook network.
    memory_fixed_gib, memory_per_item_gib
        The memory of one process without input, and the memory per request of a batch.
    max_batch, max_processes
        The largest measured batch size and number of processes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    launch_ms: float = Field(gt=0)
    launch_contention: float = Field(ge=0)
    host_per_item_ms: float = Field(ge=0)
    gpu_fixed_ms: float = Field(ge=0)
    gpu_per_item_ms: float = Field(gt=0)
    batch_exponent: float = Field(gt=0)
    unbatched_ratio: float = Field(gt=0)
    bandwidth_share: float = Field(ge=0, le=1)
    unscaled_share: float = Field(ge=0, le=1)
    queueing: float = Field(ge=0, le=1)
    memory_fixed_gib: float = Field(ge=0)
    memory_per_item_gib: float = Field(ge=0)
    max_batch: int = Field(ge=1)
    max_processes: int = Field(ge=1)

    def host_ms(self, batch: float) -> float:
        """All host work of a single process for one batch, in ms, whether it overlaps with GPU work or not."""
        return self.launch_ms + self.host_per_item_ms * batch

    def gpu_ms(self, batch: float, compute_slices: int) -> float:
        """The GPU time of one batch that has the slice to itself, in ms; more ``compute_slices`` never make it longer.
        """
        alone_ms = self.gpu_fixed_ms + self.gpu_per_item_ms * batch**self.batch_exponent
        kernels = self.unbatched_ratio if batch == 1 else 1.0
        return kernels * alone_ms * self._slowness(compute_slices)

    def exposed_host_ms(self, batch: float, processes: int, compute_slices: int) -> float:
        """The time in which a process does not use the slice while it serves one batch, in ms: the think time of the
        network.

        ``processes`` is the number of all processes that launch kernels on the slice.
        """
        launch_ms = self.launch_ms * (1 + self.launch_contention * (processes - 1))
        gpu_ms = self.gpu_ms(batch, compute_slices)
        longer, shorter = max(launch_ms, gpu_ms), min(launch_ms, gpu_ms)
        overlapped_ms = longer * (1 + (shorter / longer) ** OVERLAP_SHARPNESS) ** (1 / OVERLAP_SHARPNESS)
        return self.host_per_item_ms * batch + overlapped_ms - gpu_ms

    def batch_latency_ms(self, batch: float, processes: int, compute_slices: int) -> float:
        """The time from the start of a batch to its end, with ``processes`` busy on the slice, in ms.

        It is the larger root T of (T - A) (T - B) = q S (Z + B - T), where Z is the think time, S the slice time, A = Z
        + S the time of a process alone, B = ``processes`` S the time of a saturated slice, and q ``queueing``. For q =
        0 the root is the larger of A and B, the network's asymptotes; for q = 1 it is Schweitzer's approximation.
        """
        gpu_ms = self.gpu_ms(batch, compute_slices)
        alone_ms = self.exposed_host_ms(batch, processes, compute_slices) + gpu_ms
        busy_ms = (processes - self.queueing) * gpu_ms
        crossing_ms = 2 * gpu_ms * math.sqrt(self.queueing * (processes - 1))
        return (alone_ms + busy_ms + math.hypot(alone_ms - busy_ms, crossing_ms)) / 2

    def latency_ms(self, batch: ArrayLike, processes: ArrayLike, compute_slices: ArrayLike) -> Floats:
        """The batch latencies in ms, as ``batch_latency_ms`` computes them, for arrays that broadcast against each
        other.
        """
        return batch_latency_ms_array(self, batch, processes, compute_slices)

    def throughput_rps(self, batch: float, processes: int, compute_slices: int) -> float:
        """The throughput of all ``processes`` together, in requests/s."""
        return 1000 * processes * batch / self.batch_latency_ms(batch, processes, compute_slices)

    @overload
    def memory_gib(self, batch: int, processes: int) -> float: ...

    @overload
    def memory_gib(self, batch: Floats | Ints, processes: int | Floats | Ints) -> Floats: ...

    def memory_gib(self, batch: Any, processes: Any) -> Any:
        """The memory of all ``processes`` together, in GiB."""
        return processes * (self.memory_fixed_gib + self.memory_per_item_gib * batch)

    def _slowness(self, compute_slices: int) -> float:
        """The GPU time on a slice divided by the GPU time on a slice with one GPC."""
        memory_slices = 2.0 ** math.ceil(math.log2(compute_slices))
        scaled = (1 - self.bandwidth_share) / compute_slices + self.bandwidth_share / memory_slices
        return self.unscaled_share + (1 - self.unscaled_share) * scaled


Coefficients = ClosedNetwork | SimpleNamespace
"""A ClosedNetwork, or any object with the same latency coefficients as attributes: a fit tries values that a
ClosedNetwork would refuse.
"""


def batch_latency_ms_array(coefficients: Coefficients, batch: ArrayLike, processes: ArrayLike,
                           compute_slices: ArrayLike) -> Floats:
    """``ClosedNetwork.batch_latency_ms`` for arrays.

    Parameters
    ----------
    coefficients
        The coefficients of the network.
    batch, processes, compute_slices
        Arrays or numbers that broadcast against each other.

    Returns
    -------
    ndarray
        Batch latencies in ms, in the broadcast shape.
    """
    think_ms, gpu_ms = work_ms_array(coefficients, batch, processes, compute_slices)
    processes, queueing = np.asarray(processes, float), coefficients.queueing
    alone_ms, full_ms = think_ms + gpu_ms, gpu_ms * (processes - queueing)
    queued_ms2 = 4 * queueing * gpu_ms**2 * (processes - 1)
    return 0.5 * (alone_ms + full_ms + np.sqrt((alone_ms - full_ms) ** 2 + queued_ms2))


def work_ms_array(coefficients: Coefficients, batch: ArrayLike, processes: ArrayLike,
                  compute_slices: ArrayLike) -> tuple[Floats, Floats]:
    """(think times, slice times) in ms: ``ClosedNetwork.exposed_host_ms`` and ``ClosedNetwork.gpu_ms`` for arrays."""
    of, batch, processes = coefficients, np.asarray(batch, float), np.asarray(processes, float)
    gpu_ms = _gpu_ms_array(of, batch, np.asarray(compute_slices, float))
    launch_ms = of.launch_ms * (1 + of.launch_contention * (processes - 1))
    ratio = np.minimum(launch_ms, gpu_ms) / np.maximum(launch_ms, gpu_ms)
    overlapped_ms = np.maximum(launch_ms, gpu_ms) * (1 + ratio**OVERLAP_SHARPNESS) ** (1 / OVERLAP_SHARPNESS)
    return of.host_per_item_ms * batch + overlapped_ms - gpu_ms, gpu_ms


def _gpu_ms_array(of: Coefficients, batch: Floats, compute_slices: Floats) -> Floats:
    """``ClosedNetwork.gpu_ms`` for arrays."""
    # MIG gives a slice the next power of two in memory slices: 3 GPCs have as much bandwidth as 4.
    memory_slices = np.exp2(np.ceil(np.log2(compute_slices)))
    scaled = (1 - of.bandwidth_share) / compute_slices + of.bandwidth_share / memory_slices
    work_ms = of.gpu_fixed_ms + of.gpu_per_item_ms * batch**of.batch_exponent
    unscaled_ms = of.unscaled_share * work_ms
    return np.where(batch == 1, of.unbatched_ratio, 1) * (unscaled_ms + (work_ms - unscaled_ms) * scaled)


def network_hold_ms(think_ms: np.ndarray, slice_ms: np.ndarray, cycle_ms: np.ndarray,
                    processes: np.ndarray) -> np.ndarray:
    """(replicas,), an upper bound in ms on the batch time of every replica on a slice that all processes share equally
    (processor sharing).

    For each batch a process thinks for Z and needs the slice for S. While process i uses the slice, every other process
    j gets as much of the slice as i does, hence no more than S_i in total. Process j also uses no more than its own
    work S_j in each of its visits, and at most 1 + floor(t / cycle_j) visits begin within a time t. Before the batch of
    i ends, the time t since its start is therefore less than

        Z_i + S_i + sum over j of min(S_i, S_j (1 + floor(t / cycle_j))),

    and the least t that equals this expression is an upper bound. With P processes it is at most Z_i + P S_i. The bound
    also holds if other processes start, stop or run smaller batches. With more than three processes it is loose.

    Parameters
    ----------
    think_ms, slice_ms
        Shape (replicas,): the largest think time and slice time over all batch sizes that may run.
    cycle_ms
        Shape (replicas,): the least sum of think time and slice time over all batch sizes that may run.
    processes
        Shape (replicas,): the number of processes of every replica.

    Returns
    -------
    ndarray
        Shape (replicas,): the bounds in ms.
    """
    others = processes - np.eye(len(processes), dtype=int)
    alone_ms = think_ms + slice_ms
    hold_ms, previous_ms = alone_ms, np.zeros(len(alone_ms))
    while (hold_ms > previous_ms).any():
        visits = 1 + np.floor(hold_ms[:, None] / cycle_ms)
        previous_ms, hold_ms = hold_ms, alone_ms + (others * np.minimum(slice_ms[:, None], slice_ms * visits)).sum(1)
    return hold_ms

"""Performance data of kind ``closed-network``: the fitted coefficients of several models on one GPU type, with the
errors of their predictions against measurements, and the longest times and loads of replicas that share a slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from provision.models.base.arrays import Floats
from provision.models.base.fields import Name, NonNegative, PositiveCount, Record, Text
from provision.models.hardware.gpu import WHOLE, gpu_type, no_profile
from provision.models.performance.closed_network import (
    ClosedNetwork,
    batch_latency_ms_array,
    network_hold_ms,
    work_ms_array,
)
from provision.models.performance.operating_points import Member, OperatingPoints, PerformanceData, Prediction


def relative_errors(predicted: ArrayLike, measured: Floats) -> Floats:
    """The array of |predicted - measured| / measured."""
    return np.abs(np.asarray(predicted) / measured - 1)


def fitted_error(errors: Floats) -> FittedError:
    """Summarise an array of relative errors as a FittedError."""
    mean, p95, worst = np.mean(errors), np.percentile(errors, 95), np.max(errors)
    return FittedError(
        mean=round(float(mean), 5), p95=round(float(p95), 5), max=round(float(worst), 5), points=len(errors)
    )


class FittedError(Record):
    """Mean, 95th percentile and maximum of the relative errors on the points by which a fit was judged, as
    fractions."""

    mean: NonNegative
    p95: NonNegative
    max: NonNegative
    points: PositiveCount


class FittedModel(Record):
    """The coefficients of one model, and the error of the fit."""

    coefficients: ClosedNetwork
    error: FittedError | None = None


class FittedNetworks(PerformanceData):
    """The closed-network coefficients of several models on a GPU type, valid for the listed ``profiles`` and
    ``batches``.
    """

    sharing = "if_allowed"
    kind: Literal["closed-network"]
    command: Text = ""
    fitted: Text = ""
    profiles: tuple[Name, ...] = Field(min_length=1)
    batches: tuple[PositiveCount, ...] = Field(min_length=1)
    models: dict[Name, FittedModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_profiles(self) -> Self:
        if not gpu_type(self.gpu).mig:
            raise ValueError(f"closed networks scale with MIG's compute slices, which {self.gpu} has not; use a table")
        unknown = set(self.profiles) - {WHOLE, *gpu_type(self.gpu).profiles}
        if unknown:
            raise ValueError(no_profile(self.gpu, min(unknown)))
        return self

    def helps_sharing(self, profile: str) -> bool:
        """See ``PerformanceData.helps_sharing``. It is true for every profile that the networks describe: the latency
        of a replica on a shared slice is predicted at its routed rate, but that of a single replica with all processes
        busy.
        """
        return profile in self.profiles

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        return self.model_dump(mode="json") | {"batches": [batch for batch in self.batches if batch <= most]}

    def scaled(self, factors: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
        """See ``PerformanceData.scaled``."""
        content = self.model_dump(mode="json", exclude={"bands"}, exclude_none=True)
        for model, parts in factors.items():
            of = content["models"][model]["coefficients"]
            of |= {name: of[name] * parts["times"]
                   for name in ("launch_ms", "host_per_item_ms", "gpu_fixed_ms", "gpu_per_item_ms")}
        return content

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The operating points at all batch sizes and numbers of processes that fit into the memory of the slice."""
        network, gpu = self.models[model].coefficients, gpu_type(self.gpu)
        if profile not in self.profiles:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        grid = np.meshgrid(
            [batch for batch in self.batches if batch <= network.max_batch],
            np.arange(1, min(network.max_processes, gpu.mps_clients) + 1),
            indexing="ij",
        )
        batch, processes = (axis.ravel() for axis in grid)
        fits = network.memory_gib(batch, processes) <= gpu.slice_memory_gib(profile)
        batch, processes = batch[fits], processes[fits]
        latency_ms = batch_latency_ms_array(network, batch, processes, gpu.slice_compute(profile))
        return OperatingPoints(batch, processes, latency_ms, 1000 * batch * processes / latency_ms)

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """The predictions for all replicas on a slice.

        A replica that has the slice to itself is a closed network: its processes are always busy.

        Several replicas are classes of one processor-sharing network, each at the rate routed to it. Let U be the
        utilisation of the slice, P the number of all processes, Z the think time and S the slice time of a batch. A
        batch takes Z + S / (1 - U), the mean of the open network, but no longer than Z + P S, since at most P - 1 other
        processes share the slice. At a lower rate batches are smaller, and small batches may use the slice for longer
        per request. Therefore U is taken as the largest utilisation over all rates up to the routed rates, and the
        latency as the latency of the longest batch. U is at most 1 as long as the latency is within the time that
        batches may wait to fill and the throughputs carry the rates: with U above 1 batches would take P S or longer,
        and n processes use at most n / P of the slice.

        Where batches may be partly filled (rules for random arrivals) the latency is an upper bound for every batch
        size and every routing (`closed_network.network_hold_ms`).
        """
        if len(members) == 1 or any(member.sm_share != 1 for member in members):
            return super().predict(profile, members)
        if not all(self._describes(profile, member) for member in members):
            return [None] * len(members)
        compute = gpu_type(self.gpu).slice_compute(profile)
        launching = sum(member.processes for member in members)
        if members[0].partly_filled:
            return self._longest(members, launching, compute)
        networks = [self.models[member.model].coefficients for member in members]
        busy = sum(most_busy(network, one, compute) for network, one in zip(networks, members, strict=True))
        slowdown = launching if busy >= 1 else min(launching, 1 / (1 - busy))
        return [
            _shared(network, member, launching, compute, slowdown)
            for network, member in zip(networks, members, strict=True)
        ]

    def _longest(self, members: Sequence[Member], launching: int, compute: int) -> list[Prediction | None]:
        """The predictions if batches may be partly filled: upper bounds on batch times with all processes busy."""
        work = [longest_work_ms(self.models[one.model].coefficients, one.batch, launching, compute) for one in members]
        processes = np.array([one.processes for one in members])
        think_ms, slice_ms, cycle_ms = np.array(work).T
        hold_ms = network_hold_ms(think_ms, slice_ms, cycle_ms, processes).tolist()
        return [
            Prediction(hold, 1000 * one.processes * one.batch / hold,
                       self.models[one.model].coefficients.memory_gib(one.batch, one.processes))
            for one, hold in zip(members, hold_ms, strict=True)
        ]

    def _describes(self, profile: str, member: Member) -> bool:
        """Whether an operating point lies in the fitted range."""
        network = self.models[member.model].coefficients
        return (
            profile in self.profiles
            and member.batch in self.batches
            and member.batch <= network.max_batch
            and member.processes <= network.max_processes
        )

    def _sizes(self, profile: str, member: Member) -> list[int]:
        return [size for size in self.batches if size < member.batch]

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        if not self._describes(profile, member):
            return None
        network, compute = self.models[member.model].coefficients, gpu_type(self.gpu).slice_compute(profile)
        return Prediction(
            network.batch_latency_ms(member.batch, member.processes, compute),
            network.throughput_rps(member.batch, member.processes, compute),
            network.memory_gib(member.batch, member.processes),
        )


def longest_work_ms(network: ClosedNetwork, batch: int, launching: int, compute: int) -> tuple[float, float, float]:
    """(longest think time, longest slice time, shortest sum of both), in ms, over all batch sizes from 1 to ``batch``.

    ``launching`` is the number of processes on the slice; the shortest sum is for a process that launches kernels
    alone.
    """
    sizes = np.arange(1, batch + 1)
    think_ms, slice_ms = work_ms_array(network, sizes, launching, compute)
    least_ms = np.add(*work_ms_array(network, sizes, 1, compute)).min()
    return float(think_ms.max()), float(slice_ms.max()), float(least_ms)


def most_busy(network: ClosedNetwork, member: Member, compute: int) -> float:
    """The largest fraction of a slice's time that a replica takes at any rate up to its own.

    Batches larger than those that the rate fills are included, up to the replica's batch size.
    """
    sizes = range(1, member.batch + 1)
    busy_s = [network.gpu_ms(size, compute) / (1000 * size) for size in sizes]
    longest_s = list(accumulate(reversed(busy_s), max))[::-1]
    per_s = 1000 / member.fill_ms if member.fill_ms > 0 else np.inf
    return max(longest_s[size - 1] * (min(member.rate_rps, size * per_s) if size < member.batch else member.rate_rps)
               for size in range(1, member.filled + 1))


def _shared(network: ClosedNetwork, member: Member, launching: int, compute: int, slowdown: float) -> Prediction:
    """The Prediction for one replica (a class of the network) on a shared slice. The time of a batch grows with its
    size from size 2 on. A batch of size 1 may take longer than a batch of size 2, by the factor ``unbatched_ratio``.
    Therefore the longest batch has size 1 or the planned size.
    """
    single_ms, planned_ms = (
        network.exposed_host_ms(size, launching, compute) + slowdown * network.gpu_ms(size, compute)
        for size in (1, member.batch)
    )
    throughput_rps = 1000 * member.processes * member.batch / planned_ms
    return Prediction(max(single_ms, planned_ms), throughput_rps, network.memory_gib(member.batch, member.processes))

"""iGniter's performance model (TPDS 2022, eqs. 1-11): it predicts how workloads that share a GPU under MPS slow each
other down. ``predict`` computes single predictions; ``solo_terms`` and ``together`` compute arrays of predictions. The
two implementations are independent of each other, and tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from provision.models.base.arrays import Floats, Ints
from provision.models.base.fields import Fraction, Name, NonNegative, Number, Positive, PositiveCount, Record, Text
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.operating_points import Member, OperatingPoints, PerformanceData, Prediction
from provision.models.performance.shared_gpus import NEVER_MS, MemoryStated, SharedMemoryData, grid, on_grid, units_of

BYTES_PER_MS = 1e6
"""Bytes transferred per millisecond at 1 GB/s."""


class IgniterHardware(Record):
    """The coefficients of a GPU type.

    In the paper ``pcie_gb_per_s`` is called B_pcie, ``power_cap_w`` P, ``max_clock_mhz`` F, ``idle_power_w`` p_idle,
    ``clock_slope_mhz_per_w`` alpha_f, and ``unit_share`` r_unit. SM shares are multiples of ``unit_share``. With n
    workloads on the GPU each kernel is delayed by ``scheduling_slope_ms`` (alpha_sch) * n + ``scheduling_intercept_ms``
    (beta_sch).
    """

    pcie_gb_per_s: Positive
    power_cap_w: Positive
    max_clock_mhz: Positive
    idle_power_w: NonNegative
    clock_slope_mhz_per_w: float = Field(strict=True, allow_inf_nan=False, le=0)
    scheduling_slope_ms: NonNegative
    scheduling_intercept_ms: Number
    unit_share: Fraction

    @model_validator(mode="after")
    def _sharing_costs(self) -> Self:
        if self.extra_delay_ms(2) < 0:
            raise ValueError("scheduling_intercept_ms: a second workload would shorten the scheduling delay")
        return self

    @property
    def units(self) -> int:
        """The number of resource units of a whole GPU: 1 / ``unit_share``."""
        return units_of(self.unit_share)

    def transfer_ms(self, size_bytes: float) -> float:
        """The time of a transfer over PCIe (eq. 3), in ms."""
        return size_bytes / (self.pcie_gb_per_s * BYTES_PER_MS)

    def extra_delay_ms(self, count: int) -> float:
        """The extra scheduling delay of a kernel if ``count`` workloads share the GPU (eq. 6), in ms."""
        return self.scheduling_slope_ms * count + self.scheduling_intercept_ms if count > 1 else 0.0

    def clock_ratio(self, demand_w: float) -> float:
        """The clock as a fraction of its maximum, at a power demand in W (eq. 9).

        At demands that the model does not describe it is 0 or negative.
        """
        excess_w = max(demand_w - self.power_cap_w, 0.0)
        return 1 + self.clock_slope_mhz_per_w * excess_w / self.max_clock_mhz


class IgniterModel(MemoryStated):
    """The coefficients of a DNN model on a GPU type.

    ``k1_ms`` to ``k5_ms`` are the coefficients of eq. 11, for SM shares as fractions. ``load_bytes`` and
    ``feedback_bytes`` are d_load and d_feedback per request, ``kernels`` is n_k and ``kernel_delay_ms`` k_sch. Power
    (W) and L2 utilisation (a fraction) grow linearly with the processing ability b / k_act (requests/s): alpha_power is
    ``power_w_per_rps``, beta_power ``power_base_w``, alpha_cacheutil ``cache_per_rps``, beta_cacheutil ``cache_base``.
    ``cache_sensitivity`` is alpha_cache, per unit of the other workloads' utilisation. ``error`` is the error of eq. 11
    on the active times to which it was fitted.
    """

    load_bytes: NonNegative
    feedback_bytes: NonNegative
    kernels: PositiveCount
    kernel_delay_ms: NonNegative
    k1_ms: Number
    k2_ms: Number
    k3_ms: Number
    k4_share: Number
    k5_ms: Number
    power_w_per_rps: NonNegative
    power_base_w: Number
    cache_per_rps: NonNegative
    cache_base: Number
    cache_sensitivity: NonNegative
    error: FittedError | None = None

    def active_ms(self, batch: float, sm_share: float) -> float:
        """The GPU active time of a batch alone at full clock (eq. 11), in ms."""
        work_ms = self.k1_ms * batch**2 + self.k2_ms * batch + self.k3_ms
        return work_ms / (sm_share + self.k4_share) + self.k5_ms

    def power_w(self, ability_rps: float) -> float:
        """The power above idle power, in W, at a processing ability in requests/s."""
        return self.power_w_per_rps * ability_rps + self.power_base_w

    def cache_demand(self, ability_rps: float) -> float:
        """The L2 utilisation as a fraction, at a processing ability in requests/s."""
        return self.cache_per_rps * ability_rps + self.cache_base


class IgniterProfiles(SharedMemoryData):
    """iGniter's coefficients of a GPU type and of several models on it, for batches up to ``max_batch``."""

    sharing = "always"
    feature = "interference"
    divides_sms = True
    kind: Literal["igniter"]
    command: Text = ""
    fitted: Text = ""
    hardware: IgniterHardware
    max_batch: PositiveCount
    models: dict[Name, IgniterModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for name in self.models:
            terms = solo_terms(self, name, *grid(self.hardware.unit_share, self.max_batch))
            if self.models[name].k4_share + self.hardware.unit_share <= 0 or terms.active_ms.min() <= 0:
                raise ValueError(f"model {name}: k1_ms to k5_ms give an active time that is not above 0")
            if min(terms.power_w.min(), terms.cache.min()) < 0:
                raise ValueError(f"model {name}: power or L2 utilisation falls below 0 at small shares")
        return self

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        return self.model_dump(mode="json") | {"max_batch": min(self.max_batch, most)}

    @property
    def stated(self) -> Mapping[str, MemoryStated]:
        """The models by name, which state their memory."""
        return self.models

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The operating points at every batch size and SM share at which the model, alone on the GPU, fits into its
        memory.
        """
        return self._points(model, profile, lambda terms: terms)

    def longest_points(self, model: str, profile: str) -> OperatingPoints:
        """The points of ``operating_points``, each with the most time and demand of any batch size up to its own."""
        return self._points(model, profile, lambda terms: most_demanding(terms, axis=0))

    def _points(self, model: str, profile: str, changed: Callable[[Terms], Terms]) -> OperatingPoints:
        """Operating points of the model alone, from its Terms, (batches, units), after ``changed`` was applied."""
        if profile != WHOLE:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        batches, shares = grid(self.hardware.unit_share, self.max_batch)
        kept = ~self.crowding(model, batches, shares)
        terms = changed(solo_terms(self, model, batches, shares))
        alone = Terms(*(column[kept].reshape(-1, 1) for column in terms))
        latency_ms, throughput_rps = (column[:, 0] for column in together(self.hardware, alone))
        batch = batches[kept]
        return OperatingPoints(batch, np.ones_like(batch), latency_ms, throughput_rps, shares[kept])

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """The predictions for all replicas that share the GPU (eqs. 1-11), or None for each if the model does not
        apply. The model does not apply to a MIG instance, to several processes of one replica, to a batch above
        ``max_batch``, to a share below ``unit_share``, and to a power demand at which eq. 9 leaves no clock.
        """
        nothing: list[Prediction | None] = [None] * len(members)
        if profile != WHOLE or not all(on_grid(one, self.hardware.unit_share, self.max_batch) for one in members):
            return nothing
        active_ms, ability = zip(*(self._most(one) for one in members), strict=True)
        demand_w = [self.models[one.model].power_w(rps) for one, rps in zip(members, ability, strict=True)]
        cache = [self.models[one.model].cache_demand(rps) for one, rps in zip(members, ability, strict=True)]
        clock = self.hardware.clock_ratio(self.hardware.idle_power_w + sum(demand_w))
        if clock <= 0:
            return nothing
        extra_ms = self.hardware.extra_delay_ms(len(members))
        return [
            self._prediction(one, active_ms[at], sum(cache[:at] + cache[at + 1 :]), extra_ms, clock)
            for at, one in enumerate(members)
        ]

    def _most(self, member: Member) -> tuple[float, float]:
        """(longest active time in ms, highest processing ability in requests/s) of a member. Both are for the planned
        batch size; if batches may be partly filled, over all batch sizes up to it.
        """
        model, least = self.models[member.model], 1 if member.partly_filled else member.batch
        active_ms = {size: model.active_ms(size, member.sm_share) for size in range(least, member.batch + 1)}
        return max(active_ms.values()), max(1000 * size / active for size, active in active_ms.items())

    def _prediction(self, member: Member, active_ms: float, others_cache: float, extra_delay_ms: float,
                    clock: float) -> Prediction:
        """The Prediction for one member, by eqs. 1-5 and 8."""
        model, batch = self.models[member.model], member.batch
        scheduling_ms = (model.kernel_delay_ms + extra_delay_ms) * model.kernels
        gpu_ms = (scheduling_ms + active_ms * (1 + model.cache_sensitivity * others_cache)) / clock
        load_ms = self.hardware.transfer_ms(model.load_bytes * batch)
        feedback_ms = self.hardware.transfer_ms(model.feedback_bytes * batch)
        rate_rps = 1000 * batch / (gpu_ms + feedback_ms)
        return Prediction(load_ms + gpu_ms + feedback_ms, rate_rps, model.memory_gib(batch))


def igniter_data(performance: Iterable[PerformanceData]) -> dict[str, IgniterProfiles]:
    """The iGniter data among performance data, by GPU type."""
    return {data.gpu: data for data in performance if isinstance(data, IgniterProfiles)}


class Terms(NamedTuple):
    """The quantities of operating points that a search needs: arrays of one shape, with an element for every point.

    ``scheduling_ms`` and ``active_ms`` are times alone at full clock, ``cache`` is the L2 utilisation as a fraction,
    and ``cache_sensitivity`` the slowdown per unit of the others' utilisation. A position with batch 0 and zeros is
    empty.
    """

    batch: Floats
    load_ms: Floats
    feedback_ms: Floats
    scheduling_ms: Floats
    kernels: Floats
    cache_sensitivity: Floats
    active_ms: Floats
    power_w: Floats
    cache: Floats


def solo_terms(profiles: IgniterProfiles, model: str, batch: ArrayLike, sm_share: Floats | float) -> Terms:
    """The Terms of one model alone; the arrays of batch sizes and SM shares broadcast against each other."""
    one, batch = profiles.models[model], np.asarray(batch, float)
    active_ms = np.polyval([one.k1_ms, one.k2_ms, one.k3_ms], batch) / (sm_share + one.k4_share) + one.k5_ms
    ability_rps = 1000 * batch / active_ms
    active_ms = np.where(profiles.crowding(model, batch, sm_share), NEVER_MS, active_ms)
    ms_per_byte = 1 / (profiles.hardware.pcie_gb_per_s * BYTES_PER_MS)
    terms = Terms(
        batch=batch,
        load_ms=one.load_bytes * ms_per_byte * batch,
        feedback_ms=one.feedback_bytes * ms_per_byte * batch,
        scheduling_ms=np.asarray(one.kernel_delay_ms * one.kernels),
        kernels=np.asarray(one.kernels, float),
        cache_sensitivity=np.asarray(one.cache_sensitivity),
        active_ms=active_ms,
        power_w=one.power_w_per_rps * ability_rps + one.power_base_w,
        cache=one.cache_per_rps * ability_rps + one.cache_base,
    )
    return Terms(*np.broadcast_arrays(*terms))


def most_demanding(terms: Terms, axis: int) -> Terms:
    """The Terms in which each point has the most time, power and L2 utilisation of any batch size up to its own.

    Batch sizes ascend along ``axis``.
    """
    most = {name: np.maximum.accumulate(getattr(terms, name), axis) for name in ("active_ms", "power_w", "cache")}
    return terms._replace(**most)


def together(hardware: IgniterHardware, terms: Terms) -> tuple[Floats, Floats]:
    """The pair (batch latencies in ms, throughputs in requests/s) of several sets of replicas, each set on its own GPU.

    Parameters
    ----------
    hardware
        The coefficients of the GPU type.
    terms
        The Terms of the replicas; the last axis is over the replicas of a set.

    Returns
    -------
    tuple of two arrays
        Latencies and throughputs in the shape of the terms. If the power demand leaves no clock, the latency is
        infinite and the throughput 0.
    """
    count = np.count_nonzero(terms.batch, axis=-1, keepdims=True)
    others = terms.cache.sum(-1, keepdims=True) - terms.cache
    return in_company(hardware, terms, count, others, terms.power_w.sum(-1, keepdims=True))


def in_company(hardware: IgniterHardware, terms: Terms, count: Ints, others_cache: Floats,
               power_w: Floats) -> tuple[Floats, Floats]:
    """The pair (batch latencies in ms, throughputs in requests/s) of replicas, given sums over their neighbours.

    Parameters
    ----------
    hardware
        The coefficients of the GPU type.
    terms
        The Terms of the replicas.
    count, others_cache, power_w
        For each replica: the number of replicas on its GPU, the sum of its neighbours' L2 utilisations, and the power
        of all replicas on the GPU above idle, in W. The arrays broadcast against the terms.

    Returns
    -------
    tuple of two arrays
        Latencies and throughputs, as ``together`` returns them.
    """
    delay_ms = hardware.scheduling_slope_ms * count + hardware.scheduling_intercept_ms
    excess_w = hardware.idle_power_w + power_w - hardware.power_cap_w
    clock = 1 + hardware.clock_slope_mhz_per_w / hardware.max_clock_mhz * np.maximum(excess_w, 0)
    busy_ms = terms.scheduling_ms + terms.kernels * np.where(count > 1, delay_ms, 0)
    busy_ms = busy_ms + terms.active_ms * (1 + terms.cache_sensitivity * others_cache)
    gpu_ms = np.divide(busy_ms, clock, out=np.full_like(busy_ms, np.inf), where=clock > 0)
    reply_ms = gpu_ms + terms.feedback_ms
    throughput = np.divide(1000 * terms.batch, reply_ms, out=np.zeros_like(reply_ms), where=terms.batch > 0)
    return terms.load_ms + reply_ms, throughput

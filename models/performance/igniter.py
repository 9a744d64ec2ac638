"""iGniter's performance model (TPDS 2022, eqs. 1-11): what workloads that share a GPU under MPS do to each other.

The scalar path of ``predict`` and the arrays of ``solo_terms`` and ``together`` are written apart; tests hold
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Fraction, Name, NonNegative, Number, Positive, PositiveCount, Record, Text
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.memory import NEVER_MS, MemoryStated, SharedMemoryData
from provision.models.performance.operating_points import OperatingPoints, PerformanceData, Prediction
from provision.models.performance.sm_shares import grid, on_grid, units_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from provision.models.base.arrays import Floats, Ints
    from provision.models.performance.operating_points import Member

BYTES_PER_MS = 1e6
"""Bytes that pass in a millisecond at 1 GB/s."""


class IgniterHardware(Record):
    """The coefficients of a GPU type.

    ``pcie_gb_per_s`` is B_pcie, ``power_cap_w`` P, ``max_clock_mhz`` F, ``idle_power_w`` p_idle,
    ``clock_slope_mhz_per_w`` alpha_f. Each kernel waits ``scheduling_slope_ms`` (alpha_sch) per workload on
    the GPU plus ``scheduling_intercept_ms`` (beta_sch) longer than alone. SM shares are multiples of
    ``unit_share`` (r_unit).
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
        """Resource units of a whole GPU."""
        return units_of(self.unit_share)

    def transfer_ms(self, size_bytes: float) -> float:
        """Time over PCIe (eq. 3), in ms."""
        return size_bytes / (self.pcie_gb_per_s * BYTES_PER_MS)

    def extra_delay_ms(self, count: int) -> float:
        """Extra scheduling delay of a kernel when ``count`` workloads share the GPU (eq. 6), in ms."""
        return self.scheduling_slope_ms * count + self.scheduling_intercept_ms if count > 1 else 0.0

    def clock_ratio(self, demand_w: float) -> float:
        """The clock as a fraction of its maximum at a power demand in W (eq. 9); not above 0 beyond the model."""
        excess_w = max(demand_w - self.power_cap_w, 0.0)
        return 1 + self.clock_slope_mhz_per_w * excess_w / self.max_clock_mhz


class IgniterModel(MemoryStated):
    """The coefficients of a DNN model on a GPU type.

    ``k1_ms`` to ``k5_ms`` are those of eq. 11 with SM shares as fractions; ``load_bytes`` and
    ``feedback_bytes`` d_load and d_feedback per request; ``kernels`` n_k and ``kernel_delay_ms`` k_sch.
    Power and L2 utilisation (a fraction) grow with the processing ability b / k_act in requests/s:
    alpha_power is ``power_w_per_rps``, beta_power ``power_base_w``, alpha_cacheutil ``cache_per_rps``,
    beta_cacheutil ``cache_base``. ``cache_sensitivity`` is alpha_cache, per unit of the others' utilisation.
    ``error`` is that of eq. 11 on the measured active times it was fitted to.
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
        """GPU active time alone at full clock (eq. 11), in ms."""
        work_ms = self.k1_ms * batch**2 + self.k2_ms * batch + self.k3_ms
        return work_ms / (sm_share + self.k4_share) + self.k5_ms

    def power_w(self, ability_rps: float) -> float:
        """Power above idle at a processing ability in requests/s, in W."""
        return self.power_w_per_rps * ability_rps + self.power_base_w

    def cache_demand(self, ability_rps: float) -> float:
        """L2 utilisation at a processing ability in requests/s, as a fraction."""
        return self.cache_per_rps * ability_rps + self.cache_base


class IgniterProfiles(SharedMemoryData):
    """iGniter's coefficients of a GPU type and of several models on it, for batches up to ``max_batch``."""

    sharing = "always"
    single_pattern = True
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
        """What every model says of its memory."""
        return self.models

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The model alone on the GPU at every batch and every number of resource units that its memory allows."""
        return self._points(model, profile, lambda terms: terms)

    def longest_points(self, model: str, profile: str) -> OperatingPoints:
        """The same with the most that any batch up to each takes and demands."""
        return self._points(model, profile, lambda terms: most_demanding(terms, axis=0))

    def _points(self, model: str, profile: str, changed: Callable[[Terms], Terms]) -> OperatingPoints:
        """The model alone at every batch and number of units, its Terms, (batches, units), changed."""
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
        """Predictions for all that share the GPU (eqs. 1-11); Nones for what the model does not describe.

        That is any slice but a whole GPU, several processes, a batch above ``max_batch``, a share below
        ``unit_share``, or so much power that no clock remains.
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
        """The longest active time (ms) and the highest processing ability (requests/s) of a member's batches.

        They are those of the planned batch, or where batches may be partly filled of any up to it.
        """
        model, least = self.models[member.model], 1 if member.partly_filled else member.batch
        active_ms = {size: model.active_ms(size, member.sm_share) for size in range(least, member.batch + 1)}
        return max(active_ms.values()), max(1000 * size / active for size, active in active_ms.items())

    def _prediction(
        self, member: Member, active_ms: float, others_cache: float, extra_delay_ms: float, clock: float
    ) -> Prediction:
        """Eqs. 1-5 and 8 for one member."""
        model, batch = self.models[member.model], member.batch
        scheduling_ms = (model.kernel_delay_ms + extra_delay_ms) * model.kernels
        gpu_ms = (scheduling_ms + active_ms * (1 + model.cache_sensitivity * others_cache)) / clock
        load_ms = self.hardware.transfer_ms(model.load_bytes * batch)
        feedback_ms = self.hardware.transfer_ms(model.feedback_bytes * batch)
        rate_rps = 1000 * batch / (gpu_ms + feedback_ms)
        return Prediction(load_ms + gpu_ms + feedback_ms, rate_rps, model.memory_gib(batch))


def igniter_data(performance: Iterable[PerformanceData]) -> dict[str, IgniterProfiles]:
    """The iGniter files among performance data, by GPU type."""
    return {data.gpu: data for data in performance if isinstance(data, IgniterProfiles)}


class Terms(NamedTuple):
    """What replicas bring to a GPU, as arrays of one shape; batch 0 and zeros stand for nobody.

    ``scheduling_ms`` and ``active_ms`` hold alone and at full clock, ``cache`` and ``cache_sensitivity``
    are fractions and per unit.
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
    """Terms of one model at arrays of batches and SM shares, broadcast against each other."""
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
    """Terms with the most that any batch up to each takes of the GPU, where batches ascend along an axis."""
    most = {name: np.maximum.accumulate(getattr(terms, name), axis) for name in ("active_ms", "power_w", "cache")}
    return terms._replace(**most)


def together(hardware: IgniterHardware, terms: Terms) -> tuple[Floats, Floats]:
    """Batch latencies (ms) and throughputs (requests/s) of sets of replicas, each set on a GPU of its own.

    Parameters
    ----------
    hardware
        IgniterHardware.
    terms
        Terms whose last axis goes over the members of a set.

    Returns
    -------
    tuple of two arrays
        Shaped like the terms; infinite latency and throughput 0 where power leaves no clock.
    """
    count = np.count_nonzero(terms.batch, axis=-1, keepdims=True)
    others = terms.cache.sum(-1, keepdims=True) - terms.cache
    return in_company(hardware, terms, count, others, terms.power_w.sum(-1, keepdims=True))


def in_company(
    hardware: IgniterHardware, terms: Terms, count: Ints, others_cache: Floats, power_w: Floats
) -> tuple[Floats, Floats]:
    """The same of replicas of which is known what is on their GPUs.

    Parameters
    ----------
    hardware
        IgniterHardware.
    terms
        Those of the replicas.
    count, others_cache, power_w
        Arrays that are broadcast against the terms: how many share the GPU, the L2 utilisation of the others, and the
        power of all above idle.
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

"""Predicts how DNN models that share a GPU under MPS slow each other down (co-location), from fitted times alone and
demands.

A batch of b requests alone on a share s of a GPU's SMs takes the time t(b, s). Its thread blocks fill the SMs of its
share several times in a row; each filling is a *wave*. The time is a sum over whole waves, plus terms that grow with
the batch, with 1 / s, with both, and with neither:

    t(b, s) = fixed + request b + (fixed_work + request_work b) / s + sum over waves of ms ceil(b sms_per_request / s
    SMs)

Beside neighbours the batch takes longer, the time T. It depends on the neighbours' demand d_k of shared resources k:

    T = t + sum over k of (stretch_k t + wait_k) (sum over neighbours of d_k^r)^(1/r)
    d_k = base_k + load_k s b / (b + h)

``stretch`` slows the whole batch down, as shared memory bandwidth and a shared clock do; ``wait`` delays it by a fixed
time, as kernels do that queue to be launched. Two resources suffice on a V100; the fit finds them, and they have no
names. No coefficient is negative. Therefore a larger batch or a smaller share never shortens the time of a batch, nor
does another neighbour, or a larger batch or share of a neighbour. The formula also holds between measured points.

While a batch runs, the inputs of the next batch are transferred. Per request ``overlap_ms`` of its time overlap with
the next batch in this way, so that throughput is b / (T - overlap b).

Only single models and pairs were measured. That the demands of several neighbours combine by the norm of order r is an
assumption; r is 2 by default, so that three equal neighbours count as 1.7. The only published measurement of more than
two models is iGniter's (TPDS 2022, figure 13): with four models at 25 % each and batch 3 its predictions are within 5
%, for VGG-19 within 1.5 %. In this experiment the predictions of co-location with r = 2 differ from iGniter's by -3 to
+5 % (VGG-19 +4 %); with plain sums, r = 1, by +3 to +15 % (VGG-19 +9 %). All measured models were always busy;
therefore T is a time beside busy neighbours.

``predict`` computes single predictions; ``solo_terms`` and ``together`` compute arrays of predictions. The two
implementations are independent of each other, and tests compare them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Fraction, Name, NonNegative, Positive, PositiveCount, Record, Text
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.operating_points import Member, OperatingPoints, Prediction
from provision.models.performance.shared_gpus import NEVER_MS, MemoryStated, SharedMemoryData, grid, on_grid


class Wave(Record):
    """Thread blocks of a model that run in waves.

    The thread blocks of one request fill ``sms_per_request`` SMs once. A wave takes ``ms``, on any number of SMs.
    """

    sms_per_request: Positive
    ms: Positive


class SoloTime(Record):
    """The coefficients of the time of a batch alone, t(b, s); the ``work`` terms are divided by the SM share."""

    fixed_ms: NonNegative
    request_ms: NonNegative
    fixed_work_ms: NonNegative
    request_work_ms: NonNegative
    waves: tuple[Wave, ...] = ()

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.waves and not self.fixed_ms + self.request_ms + self.fixed_work_ms + self.request_work_ms:
            raise ValueError("all coefficients are 0: a batch would take no time; fit again")
        return self

    def ms(self, batch: int, sm_share: float, sms: int) -> float:
        """The time of a batch on the fraction ``sm_share`` of a GPU with ``sms`` SMs, in ms."""
        whole = math.fsum(
            wave.ms * math.ceil(wave.sms_per_request * batch / (sms * sm_share) * (1 - TOLERANCE))
            for wave in self.waves
        )
        work_ms = self.fixed_work_ms + self.request_work_ms * batch
        return self.fixed_ms + self.request_ms * batch + work_ms / sm_share + whole


class ColocatedModel(MemoryStated):
    """The coefficients of a DNN model; the four tuples have one number per shared resource.

    Per unit of the neighbours' demand a batch takes longer by ``stretch`` times its solo time and by ``wait_ms``.
    ``base_demand`` is the model's demand with a small share and batch; ``load_demand`` is what it demands in addition
    with the whole GPU and a batch of any size. ``overlap_ms`` is per request. ``solo_error`` is the error on batch
    sizes that were left out of a fit, ``pair_error`` is the error on latencies of measured pairs that were left out.
    """

    solo: SoloTime
    stretch: tuple[NonNegative, ...] = Field(min_length=1)
    wait_ms: tuple[NonNegative, ...]
    base_demand: tuple[NonNegative, ...]
    load_demand: tuple[NonNegative, ...]
    overlap_ms: NonNegative = 0.0
    solo_error: FittedError | None = None
    pair_error: FittedError | None = None


class Colocation(SharedMemoryData):
    """Coefficients of several models on a GPU type, for batches up to ``max_batch``.

    SM shares are multiples of ``unit_share``. ``half_load_batch`` is h of the formula, the batch size at which a
    neighbour has half of its ``load_demand``; ``norm_order`` is r. ``fitted_pairs`` are the keys (``pair_key`` of the
    fit) of the measured pairs to which the coefficients were fitted; the fit can be judged by all other pairs.
    """

    sharing = "always"
    divides_sms = True
    kind: Literal["colocation"]
    command: Text = ""
    fitted: Text = ""
    unit_share: Fraction
    max_batch: PositiveCount
    half_load_batch: Positive
    norm_order: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1, le=100)] = 2.0
    models: dict[Name, ColocatedModel] = Field(min_length=1)
    fitted_pairs: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _same_resources(self) -> Self:
        for name, one in self.models.items():
            for field in ("stretch", "wait_ms", "base_demand", "load_demand"):
                if len(getattr(one, field)) != self.resources:
                    raise ValueError(
                        f"models.{name}.{field}: has {len(getattr(one, field))} numbers, the first model's stretch "
                        f"{self.resources}; write one for each shared resource"
                    )
        return self

    @model_validator(mode="after")
    def _overlaps_less(self) -> Self:
        batch = np.arange(1, self.max_batch + 1)
        for name, one in self.models.items():
            if (solo_ms(self, name, batch, np.ones(len(batch))) <= one.overlap_ms * batch).any():
                raise ValueError(f"models.{name}.overlap_ms: is all the time that a batch takes on a whole GPU")
        return self

    @property
    def stated(self) -> Mapping[str, MemoryStated]:
        """The models by name, which state their memory."""
        return self.models

    @property
    def resources(self) -> int:
        """The number of shared resources."""
        return len(next(iter(self.models.values())).stretch)

    @property
    def sms(self) -> int:
        """The number of SMs of the GPU type."""
        return gpu_type(self.gpu).sms

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        return self.model_dump(mode="json") | {"max_batch": min(self.max_batch, most)}

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The operating points at every batch size and SM share at which the model, alone on the GPU, fits into its
        memory.
        """
        if profile != WHOLE:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        batches, shares = grid(self.unit_share, self.max_batch)
        kept = ~self.crowding(model, batches, shares)
        batch, sm_share = batches[kept], shares[kept]
        alone = solo_terms(self, model, batch[:, None], sm_share[:, None])
        latency_ms, throughput_rps = (column[:, 0] for column in together(alone, self.norm_order))
        return OperatingPoints(batch, np.ones_like(batch), latency_ms, throughput_rps, sm_share)

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """The predictions for all replicas that share the GPU, or None for each if the data does not describe the case.

        It does not describe a MIG instance, several processes of one replica, a batch above ``max_batch``, or an SM
        share that is not a multiple of ``unit_share``.
        """
        if profile != WHOLE or not all(on_grid(one, self.unit_share, self.max_batch) for one in members):
            return [None] * len(members)
        demands = [self._demand(one) for one in members]
        return [self._prediction(one, demands[:at] + demands[at + 1 :]) for at, one in enumerate(members)]

    def _demand(self, member: Member) -> list[float]:
        """The demand d_k of a member for every resource k."""
        one = self.models[member.model]
        loaded = member.sm_share * member.batch / (member.batch + self.half_load_batch)
        return [base + load * loaded for base, load in zip(one.base_demand, one.load_demand, strict=True)]

    def _prediction(self, member: Member, neighbours: list[list[float]]) -> Prediction:
        """The Prediction for a member beside neighbours with these demands, one list per neighbour."""
        one = self.models[member.model]
        alone_ms = one.solo.ms(member.batch, member.sm_share, self.sms)
        latency_ms = alone_ms
        for at, (stretch, wait_ms) in enumerate(zip(one.stretch, one.wait_ms, strict=True)):
            combined = math.fsum(demand[at] ** self.norm_order for demand in neighbours) ** (1 / self.norm_order)
            latency_ms += (stretch * alone_ms + wait_ms) * combined
        rate_rps = 1000 * member.batch / (latency_ms - one.overlap_ms * member.batch)
        return Prediction(latency_ms, rate_rps, one.memory_gib(member.batch))


class Terms(NamedTuple):
    """The quantities of operating points that a search needs: arrays with an element for every point.

    The batch time of a replica is ``solo_ms + sum over k of slope_ms[..., k] * S[k] ** (1 / norm_order)``, where S is
    the sum of its neighbours' ``demand``. It depends on the neighbours only through that sum and grows with it. (As a
    function of 0-1 variables that say which points are taken, the root is a norm, hence convex.) ``overlap_ms`` of the
    batch time overlap with the next batch, so a replica carries a rate when batch time - overlap_ms <= 1000 batch /
    rate.

    ``batch``, ``solo_ms`` and ``overlap_ms`` have the same shape; ``slope_ms`` (ms) and ``demand`` (d ** norm_order)
    have one more axis at the end, over resources. A position with batch 0 and zeros is empty. One point of a model
    dominates another if its units, ``solo_ms``, ``slope_ms`` and ``demand`` are no larger, and its batch and
    ``overlap_ms`` are no smaller.
    """

    batch: np.ndarray
    solo_ms: np.ndarray
    overlap_ms: np.ndarray
    slope_ms: np.ndarray
    demand: np.ndarray


def solo_ms(data: Colocation, model: str, batch: np.ndarray, sm_share: np.ndarray) -> np.ndarray:
    """The batch times of one model alone, in ms; the arrays of batch sizes and SM shares broadcast against each other.
    """
    one, batch = data.models[model].solo, np.asarray(batch, float)
    alone_ms = one.fixed_ms + one.request_ms * batch + (one.fixed_work_ms + one.request_work_ms * batch) / sm_share
    for wave in one.waves:
        alone_ms = alone_ms + wave.ms * np.ceil(wave.sms_per_request * batch / (data.sms * sm_share) * (1 - TOLERANCE))
    return alone_ms


def solo_terms(data: Colocation, model: str, batch: np.ndarray, sm_share: np.ndarray) -> Terms:
    """The Terms of one model alone; the arrays of batch sizes and SM shares broadcast against each other."""
    one = data.models[model]
    batch, sm_share = np.broadcast_arrays(np.asarray(batch, float), sm_share)
    alone_ms = np.where(data.crowding(model, batch, sm_share), NEVER_MS, solo_ms(data, model, batch, sm_share))
    loaded = (sm_share * batch / (batch + data.half_load_batch))[..., None]
    return Terms(
        batch=batch,
        solo_ms=alone_ms,
        overlap_ms=one.overlap_ms * batch,
        slope_ms=np.multiply(one.stretch, alone_ms[..., None]) + one.wait_ms,
        demand=(np.asarray(one.base_demand) + np.multiply(one.load_demand, loaded)) ** data.norm_order,
    )


def together(terms: Terms, norm_order: float) -> tuple[np.ndarray, np.ndarray]:
    """The pair (batch times in ms, throughputs in requests/s) of several sets of replicas, each set on its own GPU.

    The last axis of ``terms.batch`` is over the replicas of a set. Both results have the shape of ``terms.batch``.
    """
    others = 1 - np.eye(terms.batch.shape[-1])
    combined = (others @ terms.demand) ** (1 / norm_order)
    latency_ms = terms.solo_ms + (terms.slope_ms * combined).sum(axis=-1)
    occupied_ms = latency_ms - terms.overlap_ms
    throughput = np.divide(1000 * terms.batch, occupied_ms, out=np.zeros_like(occupied_ms), where=terms.batch > 0)
    return latency_ms, throughput

"""Co-location: what DNN models that share a GPU under MPS do to each other, by fitted solo times and sums of demands.

A batch alone takes the time of its *waves*. Its thread blocks fill the SMs of its share again and again, so that time
is a sum of whole waves, plus parts that go with the batch, with 1 / share, with both and with neither:

    t(b, s) = fixed + request b + (fixed_work + request_work b) / s + sum of waves' ms ceil(b sms_per_request / s SMs)

Beside others it takes longer by what they demand, d_k, of a few shared resources k:

    T = t + sum over k of (stretch_k t + wait_k) (sum over neighbours of d_k^r)^(1/r)
    d_k = base_k + load_k s b / (b + h)

``stretch`` slows the whole batch down, as shared memory and clock do; ``wait`` delays it by a fixed time, as kernels
that queue to be launched do. Two resources suffice on a V100; they are found by the fit and have no names. All
coefficients are 0 or above. So a larger batch or a smaller share never shortens a batch, and neither does a further
neighbour, nor one with a larger batch or share. Between measured batches and shares the same formula holds.

While a batch runs, the inputs of the next one come in, so that ``overlap_ms`` of every request's time do not keep the
next batch from running: throughput is batch / (T - overlap b).

Measured were a model alone and pairs. How the demands of several neighbours combine is an assumption: by the norm of
order r, 2 where not said otherwise, so that three equal neighbours count for 1.7. The one published fact on more than
two is that iGniter (TPDS 2022, figure 13) is within 5 % of four models at 25 % each, batch 3, and within 1.5 % for
VGG-19. With r = 2 co-location is -3 to +5 % from iGniter's predictions there (VGG-19 +4 %); plain sums, r = 1, are
+3 to +15 % (VGG-19 +9 %). All members were always busy, so times are those beside neighbours that never pause.

The scalar path of ``predict`` and the arrays of ``solo_terms`` and ``together`` are written apart; tests hold them
together.
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
from provision.models.performance.memory import NEVER_MS, MemoryStated, SharedMemoryData
from provision.models.performance.operating_points import Member, OperatingPoints, Prediction
from provision.models.performance.sm_shares import grid, on_grid


class Wave(Record):
    """Thread blocks that run in waves.

    Those of one request fill ``sms_per_request`` SMs, once; a wave takes ``ms`` on however many SMs.
    """

    sms_per_request: Positive
    ms: Positive


class SoloTime(Record):
    """Time of a batch alone; the ``work`` parts are divided by the SM share."""

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
        """Time of a batch on a share of a GPU with so many SMs, in ms."""
        whole = math.fsum(
            wave.ms * math.ceil(wave.sms_per_request * batch / (sms * sm_share) * (1 - TOLERANCE))
            for wave in self.waves
        )
        work_ms = self.fixed_work_ms + self.request_work_ms * batch
        return self.fixed_ms + self.request_ms * batch + work_ms / sm_share + whole


class ColocatedModel(MemoryStated):
    """The coefficients of a DNN model: ``solo``, and one number per shared resource of each of the others.

    Per unit of the neighbours' demand a batch takes ``stretch`` of its solo time and ``wait_ms`` longer.
    ``base_demand`` is what the model demands whenever it runs, ``load_demand`` what comes on top with the whole GPU and
    an endless batch. ``solo_error`` is that on batch sizes left out of a fit, ``pair_error`` that of the latencies in
    measured pairs that were not fitted. ``overlap_ms`` is per request.
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

    SM shares are multiples of ``unit_share``. ``half_load_batch`` is h, the batch at which a neighbour demands half of
    what its batch can add; ``norm_order`` is r. ``fitted_pairs`` are the keys of the measured pairs that the
    coefficients were fitted to (``pair_key`` of the fit): all others can judge them.
    """

    sharing = "always"
    single_pattern = True
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
        """What every model says of its memory."""
        return self.models

    @property
    def resources(self) -> int:
        """How many shared resources there are."""
        return len(next(iter(self.models.values())).stretch)

    @property
    def sms(self) -> int:
        """SMs of the GPU type."""
        return gpu_type(self.gpu).sms

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        return self.model_dump(mode="json") | {"max_batch": min(self.max_batch, most)}

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The model alone on the GPU at every batch and every number of units of its SMs that its memory allows."""
        if profile != WHOLE:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        batches, shares = grid(self.unit_share, self.max_batch)
        kept = ~self.crowding(model, batches, shares)
        batch, sm_share = batches[kept], shares[kept]
        alone = solo_terms(self, model, batch[:, None], sm_share[:, None])
        latency_ms, throughput_rps = (column[:, 0] for column in together(alone, self.norm_order))
        return OperatingPoints(batch, np.ones_like(batch), latency_ms, throughput_rps, sm_share)

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """Predictions for all that share the GPU; Nones for what the data does not describe.

        That is any slice but a whole GPU, several processes, a batch above ``max_batch``, or a share that is not a
        multiple of ``unit_share``.
        """
        if profile != WHOLE or not all(on_grid(one, self.unit_share, self.max_batch) for one in members):
            return [None] * len(members)
        demands = [self._demand(one) for one in members]
        return [self._prediction(one, demands[:at] + demands[at + 1 :]) for at, one in enumerate(members)]

    def _demand(self, member: Member) -> list[float]:
        """What a member demands of each resource."""
        one = self.models[member.model]
        loaded = member.sm_share * member.batch / (member.batch + self.half_load_batch)
        return [base + load * loaded for base, load in zip(one.base_demand, one.load_demand, strict=True)]

    def _prediction(self, member: Member, neighbours: list[list[float]]) -> Prediction:
        """The Prediction for a member beside neighbours with these demands."""
        one = self.models[member.model]
        alone_ms = one.solo.ms(member.batch, member.sm_share, self.sms)
        latency_ms = alone_ms
        for at, (stretch, wait_ms) in enumerate(zip(one.stretch, one.wait_ms, strict=True)):
            combined = math.fsum(demand[at] ** self.norm_order for demand in neighbours) ** (1 / self.norm_order)
            latency_ms += (stretch * alone_ms + wait_ms) * combined
        rate_rps = 1000 * member.batch / (latency_ms - one.overlap_ms * member.batch)
        return Prediction(latency_ms, rate_rps, one.memory_gib(member.batch))


class Terms(NamedTuple):
    """What replicas bring to a GPU: all that a search needs to know of an operating point.

    The batch time of a replica is ``solo_ms + sum over k of slope_ms[..., k] * S[k] ** (1 / norm_order)``, where S sums
    its neighbours' ``demand``: a function of its own point and of sums over its neighbours that grows with them. (Over
    points that are taken or not the root is a norm, hence convex.) Of the batch time ``overlap_ms`` overlaps with the
    next batch, so a rate holds when batch time - overlap_ms <= 1000 batch / rate.

    ``batch``, ``solo_ms`` and ``overlap_ms`` have one shape; ``slope_ms`` (ms) and ``demand``, d ** norm_order, have a
    last axis more, over resources. Batch 0 and zeros stand for nobody. One point of a model dominates another
    when its units, ``solo_ms``, ``slope_ms`` and ``demand`` are no larger and its batch and ``overlap_ms`` no smaller.
    """

    batch: np.ndarray
    solo_ms: np.ndarray
    overlap_ms: np.ndarray
    slope_ms: np.ndarray
    demand: np.ndarray


def solo_ms(data: Colocation, model: str, batch: np.ndarray, sm_share: np.ndarray) -> np.ndarray:
    """Times alone in ms of one model at arrays of batches and SM shares, broadcast against each other."""
    one, batch = data.models[model].solo, np.asarray(batch, float)
    alone_ms = one.fixed_ms + one.request_ms * batch + (one.fixed_work_ms + one.request_work_ms * batch) / sm_share
    for wave in one.waves:
        alone_ms = alone_ms + wave.ms * np.ceil(wave.sms_per_request * batch / (data.sms * sm_share) * (1 - TOLERANCE))
    return alone_ms


def solo_terms(data: Colocation, model: str, batch: np.ndarray, sm_share: np.ndarray) -> Terms:
    """Terms of one model at arrays of batches and SM shares, broadcast against each other."""
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
    """Batch times (ms) and throughputs (requests/s) of sets of replicas, each set on a GPU of its own.

    ``terms`` has the members of a set on the last axis of ``batch``; both results have the shape of ``batch``.
    """
    others = 1 - np.eye(terms.batch.shape[-1])
    combined = (others @ terms.demand) ** (1 / norm_order)
    latency_ms = terms.solo_ms + (terms.slope_ms * combined).sum(axis=-1)
    occupied_ms = latency_ms - terms.overlap_ms
    throughput = np.divide(1000 * terms.batch, occupied_ms, out=np.zeros_like(occupied_ms), where=terms.batch > 0)
    return latency_ms, throughput

"""gpu-lets' performance data (ATC 2022): models on parts of a GPU, alone, in turns, and beside another part. The model
follows section 2.2 (duty cycles: a request waits until its replica's turn comes, then for its batch), section 4.4
(linear interference of pairs), section 5 and Table 3 (at most two gpu-lets on a GPU). Execution times on a part of a
GPU are not published; this module assumes

    execution(batch, share) = fixed + per_request * batch / share ** scaling        (ms)

With ``scaling`` 1 this is Amdahl's law: more SMs speed up everything except the fixed part. With 0 more SMs speed up
nothing. The utilisation of L2 and DRAM on a part is the utilisation on the whole GPU times the share, as in the
authors' public program, for which their coefficients of interference were fitted.

Searches use arrays of the same times. These are computed independently of ``predict``, and tests compare the two.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.arrays import Floats
from provision.models.base.fields import Fraction, Name, NonNegative, Number, PositiveCount, Record, Text
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.operating_points import Member, OperatingPoints, PerformanceData, Prediction


class GpuletInterference(Record):
    """The coefficients c1 to c5 of section 4.4. They give the latency beside another model divided by the latency
    alone, which is at least 1.
    """

    l2_own: Number
    l2_other: NonNegative
    dram_own: Number
    dram_other: NonNegative
    constant: Number

    def slowdown(self, l2_own: Floats, l2_other: Floats, dram_own: Floats, dram_other: Floats) -> Floats:
        """The slowdowns of models in pairs, from utilisations of L2 and DRAM. Each utilisation is a fraction: that of
        the model, or of the other one, when it runs alone on the share that it has in the pair.
        """
        own, other = self.l2_own * l2_own + self.dram_own * dram_own, self.l2_other * l2_other
        return own + other + self.dram_other * dram_other + self.constant


class GpuletModel(Record):
    """The coefficients of one model: of its execution time, and of the L2 and DRAM traffic of a batch, in ms at full
    bandwidth.
    """

    fixed_ms: NonNegative
    per_request_ms: NonNegative
    l2_fixed_ms: NonNegative
    l2_per_request_ms: NonNegative
    dram_fixed_ms: NonNegative
    dram_per_request_ms: NonNegative
    memory_gib: NonNegative
    error: FittedError | None = None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.fixed_ms + self.per_request_ms <= 0:
            raise ValueError("fixed_ms and per_request_ms are both 0; a batch takes some time")
        return self

    def execution_ms(self, batch: int, share: float, scaling: float) -> float:
        """The execution time of a batch alone on the fraction ``share`` of the GPU, in ms."""
        return self.fixed_ms + self.per_request_ms * batch / share**scaling

    def utilisation(self, batch: int, share: float) -> tuple[float, float]:
        """(L2 utilisation, DRAM utilisation) of a batch alone on a share, as fractions: the utilisation on the whole
        GPU times the share.
        """
        per_ms = share / (self.fixed_ms + self.per_request_ms * batch)
        l2_ms = self.l2_fixed_ms + self.l2_per_request_ms * batch
        dram_ms = self.dram_fixed_ms + self.dram_per_request_ms * batch
        return l2_ms * per_ms, dram_ms * per_ms


class Gpulets(PerformanceData):
    """Models on the parts of one GPU type.

    ``splits`` are the ways to divide a GPU, as shares that add up to 1; ``batches`` are the batch sizes that may be
    used. Replicas with the same ``turn`` run in turns on one share; their execution times add up to the duty cycle of
    the share. A request waits at most one duty cycle and then for its execution. The predicted latency is half of this
    sum, since the rule ``half_slo`` compares it with half of the SLO. For a replica that has its share to itself, the
    duty cycle and the predicted latency are its execution time. If batches may be partly filled (rules for random
    arrivals) the predicted latency is the execution time, and the rule adds the time that a request waits for its turn.
    """

    sharing = "always"
    feature = "gpulets"
    divides_sms = True
    turns = True
    kind: Literal["gpulets"]
    command: Text = ""
    fitted: Text = ""
    splits: tuple[Annotated[tuple[Fraction, ...], Field(min_length=1, max_length=2)], ...] = Field(min_length=1)
    batches: tuple[PositiveCount, ...] = Field(min_length=1)
    scaling: Annotated[NonNegative, Field(le=1)]
    interference: GpuletInterference
    models: dict[Name, GpuletModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole_gpus(self) -> Self:
        if not all(abs(sum(split) - 1) < TOLERANCE for split in self.splits):
            raise ValueError("splits: the shares of a split must add up to 1")
        if (1.0,) not in self.splits:
            raise ValueError("splits: the whole GPU, [1.0], must be one")
        if list(self.batches) != sorted(set(self.batches)):
            raise ValueError("batches: must rise, each size once")
        return self

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        return self.model_dump(mode="json") | {"batches": [batch for batch in self.batches if batch <= most]}

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The operating points at every batch size, for the model alone on the whole GPU; none if it does not fit into
        the memory.
        """
        one = self.models[model]
        if profile != WHOLE or one.memory_gib > gpu_type(self.gpu).memory_gib:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        batch = np.array(self.batches)
        latency_ms = one.fixed_ms + one.per_request_ms * batch
        return OperatingPoints(batch, np.ones_like(batch), latency_ms, 1000 * batch / latency_ms)

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """The predictions for all replicas on a GPU, or None for each if the data does not describe the case. The data
        does not describe a MIG instance, several processes, or a batch size or split that it does not list. A replica
        is slowed down by the worst replica of the other part; for both, the worst batch size up to the planned batch
        size counts.
        """
        parts = gpulets_of(members)
        if profile != WHOLE or not all(map(self._describes, members)) or not self._can_split(members, parts):
            return [None] * len(members)
        found = {}
        for part in parts:
            others = [members[at] for other in parts if other is not part for at in other]
            busy_ms = {at: self._execution_ms(members[at], others) for at in part}
            cycle_ms = sum(busy_ms.values())
            for at, execution_ms in busy_ms.items():
                one = members[at]
                latency_ms = execution_ms if one.partly_filled else (cycle_ms + execution_ms) / 2
                found[at] = Prediction(latency_ms, 1000 * one.batch / cycle_ms, self.models[one.model].memory_gib,
                                       one.partly_filled and len(part) > 1)
        return [found[at] for at in range(len(members))]

    def _describes(self, member: Member) -> bool:
        return member.processes == 1 and member.batch in self.batches

    def _can_split(self, members: Sequence[Member], parts: list[list[int]]) -> bool:
        """Whether the replicas of each part have one share, and one of ``splits`` contains the shares of all parts."""
        if any(len({members[at].sm_share for at in part}) > 1 for part in parts):
            return False
        held = Counter(members[part[0]].sm_share for part in parts)
        return any(held <= Counter(split) for split in self.splits)

    def _execution_ms(self, member: Member, others: Sequence[Member]) -> float:
        """The execution time of a batch beside the replicas of the other part, in ms."""
        alone_ms = self.models[member.model].execution_ms(member.batch, member.sm_share, self.scaling)
        if not others:
            return alone_ms
        c = self.interference
        own = self._pressure(member, c.l2_own, c.dram_own)
        worst = max(self._pressure(other, c.l2_other, c.dram_other) for other in others)
        return alone_ms * max(1.0, c.constant + own + worst)

    def _pressure(self, member: Member, l2_weight: float, dram_weight: float) -> float:
        """The largest weighted sum of L2 and DRAM utilisation over all batch sizes up to the member's."""
        model, found = self.models[member.model], []
        for batch in self.batches[: self.batches.index(member.batch) + 1]:
            l2, dram = model.utilisation(batch, member.sm_share)
            found.append(l2_weight * l2 + dram_weight * dram)
        return max(found)


class TakesTurns(Protocol):
    """A replica of a performance model or of a plan: anything with a ``turn``."""

    @property
    def turn(self) -> int | None:
        """The number of the part of the slice on which this replica runs in turns; None if it has its own part."""
        ...


def gpulets_of(members: Sequence[TakesTurns]) -> list[list[int]]:
    """The parts of a GPU, each as the list of its members' positions; members with the same ``turn`` share a part."""
    parts: dict[object, list[int]] = {}
    for at, member in enumerate(members):
        parts.setdefault(("alone", at) if member.turn is None else member.turn, []).append(at)
    return list(parts.values())

"""The verifier's report on a plan: violations, predictions, totals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

from provision.models.base.fields import Record
from provision.models.base.shown import frame

if TYPE_CHECKING:
    from pandas import DataFrame

Kind = Literal[
    "profile", "start", "overlap", "capacity", "memory", "operating_point", "latency", "rate", "fleet", "clients"
]
KINDS = get_args(Kind)


class Violation(Record):
    """One broken rule: where, and by how much; ``gpu`` and ``slice`` are indices into the plan."""

    kind: Kind
    gpu: int | None
    slice: int | None
    workload: str | None
    value: float | None
    limit: float | None
    message: str

    @property
    def margin(self) -> float | None:
        """How far the value is from the limit, as a fraction of it; None where there are no numbers."""
        return None if self.value is None or not self.limit else (self.value - self.limit) / self.limit


class ReplicaPrediction(Record):
    """What one replica is predicted to do, and what is required of it.

    ``latency_ms`` is the latency of a batch. ``p99_ms`` is the P99 of a request's latency at the routed rate; it is
    None where the policy does not ask for it, and where the load is so high that the queue grows without end.
    """

    gpu: int
    slice: int
    workload: str
    latency_ms: float
    p99_ms: float | None = None
    budget_ms: float
    throughput_rps: float
    rate_rps: float
    memory_gib: float | None


class Report(Record):
    """Every violation of a plan, the predictions, and the totals.

    ``internal_slack`` is ParvaGPU's equation 3 with the routed share of a replica's throughput as its SM
    activity; ``external_fragmentation`` is the part of all SMs that no slice with replicas holds: 1 less
    equation 4, with the SMs that the largest profile reaches as a GPU's total.
    """

    ok: bool
    violations: tuple[Violation, ...]
    predictions: tuple[ReplicaPrediction, ...]
    gpus: int
    gpcs: int
    cost_per_hour: float | None
    internal_slack: float
    external_fragmentation: float

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per replica: what is predicted, and what is required."""
        return frame([one.model_dump() for one in self.predictions])

    def __repr__(self) -> str:
        verdict = "holds" if self.ok else f"{len(self.violations)} violations"
        return f"<Report: {verdict}, {self.gpus} GPUs, {len(self.predictions)} replicas>"

    __str__ = __repr__

    @property
    def violated(self) -> list[str]:
        """Names of the workloads that a violation concerns, sorted."""
        return sorted({one.workload for one in self.violations if one.workload is not None})

    @property
    def throughput_rps(self) -> float:
        """The most requests/s that all replicas together are predicted to serve."""
        return math.fsum(one.throughput_rps for one in self.predictions)

"""The verifier's report on a plan: violations, predictions, totals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from provision.models.base.fields import Record, absent
from provision.models.base.shown import frame

if TYPE_CHECKING:
    from pandas import DataFrame

Kind = Literal[
    "profile", "start", "overlap", "capacity", "memory", "operating_point", "latency", "rate", "fleet", "clients",
    "power",
    "place",
]


class Violation(Record):
    """A rule that the plan breaks, with the place and the amount; ``gpu`` and ``slice`` are indices into the plan."""

    kind: Kind
    gpu: int | None
    slice: int | None
    workload: str | None
    value: float | None
    limit: float | None
    message: str

    @property
    def margin(self) -> float | None:
        """The distance of the value from the limit, as a fraction of the limit; None if the rule has no numbers."""
        return None if self.value is None or not self.limit else (self.value - self.limit) / self.limit


class ReplicaPrediction(Record):
    """The predictions for one replica, and its limits. ``latency_ms`` is the latency of a batch. ``p99_ms`` is the
    percentile of a request's latency at the routed rate; it is None if the policy does not ask for it, or if the load
    is so high that the queue grows without limit. ``budget_ms`` is the limit on ``latency_ms``, or under rules for
    random arrivals on ``p99_ms``.
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
    """The verifier's report: every violation of a plan, the predictions, and the totals.

    ``internal_slack`` is ParvaGPU's equation 3, where the SM activity of a replica is its routed rate divided by its
    throughput. ``external_fragmentation`` is the fraction of all SMs that are in no slice with replicas: 1 minus
    equation 4, where a GPU's total is the number of SMs of its largest profile. ``power`` has the watts of all GPUs if
    the instance states power: idle, on average, and at full load (``idle_w``, ``mean_w``, ``full_w``).
    """

    ok: bool
    violations: tuple[Violation, ...]
    predictions: tuple[ReplicaPrediction, ...]
    gpus: int
    gpcs: int
    cost_per_hour: float | None
    internal_slack: float
    external_fragmentation: float
    power: dict[str, float] | None = Field(default=None, exclude_if=absent)

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per replica: its predictions and its limits."""
        return frame([one.model_dump() for one in self.predictions])

    def __repr__(self) -> str:
        verdict = "holds" if self.ok else f"{len(self.violations)} violations"
        return f"<Report: {verdict}, {self.gpus} GPUs, {len(self.predictions)} replicas>"

    __str__ = __repr__

    @property
    def violated(self) -> list[str]:
        """The sorted names of the workloads with a violation."""
        return sorted({one.workload for one in self.violations if one.workload is not None})

    @property
    def throughput_rps(self) -> float:
        """The predicted throughput of all replicas together, in requests/s."""
        return math.fsum(one.throughput_rps for one in self.predictions)

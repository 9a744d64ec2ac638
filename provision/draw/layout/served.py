"""What a plan does for each workload, as tables beside drawings show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from provision.draw.layout.boxes import ReplicaBox
from provision.draw.layout.colours import FillStyle
from provision.models.problem.workload import Workload

if TYPE_CHECKING:
    from provision.models.problem.instance import Instance

NAMES = ("TTFT", "TPOT")
"""The latencies of language models that replays measure, as the replay writes them after a workload's name."""


class Served(NamedTuple):
    """What a plan does for a workload. Predictions are None if unknown; ``asked``, the workload, is None without an
    instance. ``met_ms`` has the TTFT and TPOT of a replay in milliseconds; it is empty if nothing was replayed.
    """

    name: str
    style: FillStyle
    model: str
    replicas: int
    processes: int
    rate_rps: float
    latency_ms: float | None
    throughput_rps: float | None
    asked: Workload | None
    budget_ms: float | None
    planned_rps: float | None
    capacity_rps: float | None
    met_ms: Mapping[str, float]

    @property
    def tokens(self) -> float:
        """The mean number of output tokens of a request; 0 for models without tokens."""
        return self.asked.tokens.output.counts.mean if self.asked and self.asked.tokens else 0.0

    @property
    def latency_slack(self) -> float | None:
        """The fraction of the latency budget that is left; None if unknown."""
        return 1 - self.latency_ms / self.budget_ms if self.latency_ms is not None and self.budget_ms else None

    @property
    def rate_slack(self) -> float | None:
        """The fraction of the predicted throughput that is left; None if unknown."""
        rate = self.rate_rps if self.planned_rps is None else self.planned_rps
        return 1 - rate / self.throughput_rps if self.throughput_rps else None


def served(
    name: str, boxes: Sequence[ReplicaBox], style: FillStyle, instance: Instance | None, met_ms: Mapping[str, float]
) -> Served:
    """What the replicas in these boxes do for the workload of this name."""
    asked = instance.workload.get(name) if instance else None
    found = [box.prediction for box in boxes if box.prediction]
    predicted = boxes and len(found) == len(boxes)
    return Served(
        name=name,
        style=style,
        model=_models(boxes, asked),
        replicas=sum(len(box.rates_rps) for box in boxes),
        processes=sum(one.processes for box in boxes for one in box.replicas),
        rate_rps=sum(sum(box.rates_rps) for box in boxes),
        latency_ms=max(one.latency_ms for one in found) if predicted else None,
        throughput_rps=(
            sum(len(box.rates_rps) * one.throughput_rps for box, one in zip(boxes, found, strict=True))
            if predicted else None
        ),
        asked=asked,
        budget_ms=instance.budget_ms(asked) if instance and asked else None,
        planned_rps=instance.planned_rps(asked) if instance and asked else None,
        capacity_rps=_whole((box.capacity_rps, len(box.rates_rps)) for box in boxes) if predicted else None,
        met_ms=met_ms,
    )


def _whole(parts: Iterable[tuple[float | None, int]]) -> float | None:
    """The sum of number times count over the pairs whose number is known; None if no number is known."""
    known = [(value, many) for value, many in parts if value is not None]
    return sum(value * many for value, many in known) if known else None


def _models(boxes: Sequence[ReplicaBox], asked: Workload | None) -> str:
    """The models that the replicas of a workload run, as text; without replicas the workload's own model."""
    default = asked.model if asked else "not in the instance"
    return ", ".join(sorted({box.model or default for box in boxes} or {default}))

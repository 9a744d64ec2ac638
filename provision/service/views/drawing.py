"""Describes a plan for the web page to draw: rows of GPUs with their boxes, and how close every workload is to its
limits.
"""

from collections.abc import Iterable
from typing import Any

from provision import Instance, Plan
from provision.draw.layout.boxes import facts
from provision.draw.layout.colours import PALETTE
from provision.draw.layout.drawing import Drawing
from provision.draw.words import ranges
from provision.models.plans.report import ReplicaPrediction, Report

TIGHT = 0.05
"""A limit is marked as tight if less than this fraction of it is left."""


def drawn(plan: Plan, instance: Instance, report: Report) -> dict[str, Any]:
    """The drawing of a plan as plain content: ``title``, ``summary``, ``rows`` of GPUs that look alike, ``workloads``
    with their limits, ``problems`` of the drawing, and ``violations`` that the verifier found.
    """
    drawing = Drawing(plan, instance, most=len(plan.gpus))  # the page shows a map, and rows on demand
    number = {name: index for index, name in enumerate(drawing.styles)}
    return {
        "title": drawing.title,
        "summary": drawing.summary,
        "rows": [_row(row, number) for row in drawing.rows],
        "workloads": _workloads(drawing, report),
        "problems": drawing.problems,
        "violations": [one.message for one in report.violations],
    }


def _row(row: Any, number: dict[str, int]) -> dict[str, Any]:
    """A row of GPUs that look alike, as plain content; ``start`` and ``size`` are in memory slots, and ``load`` is the
    rate divided by the predicted throughput.
    """
    return {
        "gpu": row.gpu, "count": row.count, "gpus": ranges(row.gpus, 3), "slots": row.slots, "lanes": row.lanes,
        "mig": row.mig, "idle": row.idle,
        "slices": [
            {
                "start": piece.start, "size": piece.size, "lane": piece.lane, "profile": piece.profile,
                "problems": piece.problems,
                "replicas": [
                    {
                        "start": one.start, "size": one.size, "workload": number[one.workload],
                        "share": one.sm_share, "facts": facts(one)[one.sm_share < 1 :], "load": one.utilisation,
                    }
                    for one in piece.replicas
                ],
            }
            for piece in row.slices
        ],
    }


def _workloads(drawing: Any, report: Report) -> list[dict[str, Any]]:
    predictions: dict[str, list[ReplicaPrediction]] = {}
    for one in report.predictions:
        predictions.setdefault(one.workload, []).append(one)
    return [_workload(one, predictions.get(one.name, [])) for one in drawing.workloads]


def _workload(served: Any, predictions: list[ReplicaPrediction]) -> dict[str, Any]:
    """A workload as plain content: what it asks for, what it gets, and the fraction of each limit that it uses."""
    p99 = [one.p99_ms for one in predictions if one.p99_ms is not None]
    limits = _limits(predictions)
    return {
        "name": served.name, "model": served.model,
        "colour": PALETTE.index((served.style.colour, served.style.text)), "pattern": served.style.pattern,
        "slo_ms": served.asked and served.asked.slo_ms, "budget_ms": served.budget_ms,
        "latency_ms": served.latency_ms, "p99_ms": max(p99, default=None),
        "rate_rps": served.asked and served.asked.rate_rps, "planned_rps": served.planned_rps,
        "throughput_rps": served.throughput_rps, "replicas": served.replicas, "processes": served.processes,
        "used": limits, "tight": [name for name, used in limits.items() if used > 1 - TIGHT],
    }


def _limits(predictions: Iterable[ReplicaPrediction]) -> dict[str, float]:
    """The fraction of each limit that the replica closest to it uses; limits that do not apply are left out."""
    used: dict[str, float] = {}
    for one in predictions:
        shares = {
            "latency": one.latency_ms / one.budget_ms if one.p99_ms is None else 0.0,
            "p99": (one.p99_ms or 0.0) / one.budget_ms,
            "throughput": one.rate_rps / one.throughput_rps if one.throughput_rps else 0.0,
        }
        used = {name: max(share, used.get(name, 0.0)) for name, share in shares.items()}
    return {name: share for name, share in used.items() if share}

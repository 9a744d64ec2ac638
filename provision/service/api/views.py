"""Views of plans for the web page: drawings, changes between two plans, and a report as a single file."""

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

import yaml

from provision import Instance, Plan, verify
from provision.draw.convergence import Moment, convergence_figure
from provision.draw.html import figure, section, table
from provision.draw.layout.boxes import PALETTE, facts
from provision.draw.layout.drawing import Drawing
from provision.draw.page import render_page
from provision.draw.words import ranges
from provision.models.plans.disturbance import disturbance
from provision.models.plans.report import ReplicaPrediction, Report
from provision.models.problem.objective import cost_per_hour
from provision.service.messages import Job


def changes(before: tuple[Instance, Plan], after: tuple[Instance, Plan]) -> dict[str, Any]:
    """The comparison of two plans, each with the instance that prices it, as plain content: disturbance, GPUs, cost per
    hour, and how each plan runs each workload.
    """
    sides = [_changed_workloads(plan) for _, plan in (before, after)]
    names = sorted({name for side in sides for name in side})
    return {
        "disturbance": disturbance(before[1], after[1])._asdict(),
        "gpus": [len(plan.gpus) for _, plan in (before, after)],
        "cost_per_hour": [cost_per_hour(instance, plan) for instance, plan in (before, after)],
        "workloads": [{"name": name, "before": sides[0].get(name), "after": sides[1].get(name)} for name in names],
    }


def _changed_workloads(plan: Plan) -> dict[str, dict[str, Any]]:
    """The number of replicas of each workload, and their batch sizes and slices in words."""
    found: dict[str, list[Any]] = {}
    for _, _, piece, replica in plan.replicas():
        found.setdefault(replica.workload, []).append((piece, replica))
    return {
        name: {
            "replicas": len(ones),
            "batches": _counted(str(replica.batch) for _, replica in ones),
            "slices": _counted(piece.profile for piece, _ in ones),
        }
        for name, ones in found.items()
    }


def _counted(words: Any) -> str:
    """Words with the number of times that each occurs: ``2 × 1g.10gb, 2g.20gb``."""
    counts = sorted(Counter(words).items())
    return ", ".join(f"{count} × {word}" if count > 1 else word for word, count in counts)


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


def report_of(job: Job, instance: Instance, plan: Plan) -> str:
    """The HTML page of a job with a plan; the page loads nothing from elsewhere."""
    parts = [_proof(job)]
    if len(job.incumbents) > 1:
        moments = [Moment(one.seconds, one.objective, one.bound) for one in job.incumbents]
        title = f"{instance.name}, {job.verb}: {job.status}"
        parts.append(section("How the search went", figure(convergence_figure(instance, title, moments))))
    return render_page(plan, instance, verify(instance, plan), "".join([*parts, _input(instance)]))


def _proof(job: Job) -> str:
    result = job.result or {}
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    gap = "–" if result.get("gap") is None else f"{result['gap']:.2%}"
    facts = {
        "status": result.get("status"), "objective": result.get("objective"), "proven bound": result.get("bound"),
        "gap": gap, "method": result.get("method"), "ended": result.get("termination"), "seed": result.get("seed"),
        "seconds": result.get("solve_seconds"), "instance digest": job.instance_digest, "job": job.id,
        "versions": versions,
    }
    return section("Proof", table(("", ""), [(name, value) for name, value in facts.items()
                                             if value not in (None, "")]))


def _input(instance: Instance) -> str:
    content = instance.model_dump(mode="json", exclude_none=True)
    text = yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)
    return f"<details><summary>The instance, to solve again</summary><pre>{escape(text)}</pre></details>"

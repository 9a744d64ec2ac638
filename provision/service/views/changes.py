"""Compares two plans: what changes between them for every workload, and what each plan costs."""

from collections import Counter
from math import fsum
from typing import Any

from provision import Instance, Plan
from provision.models.plans.disturbance import disturbance
from provision.models.problem.objective import objective_of


def changes(before: tuple[Instance, Plan], after: tuple[Instance, Plan]) -> dict[str, Any]:
    """The comparison of two plans as plain content: disturbance, GPUs, cost per hour, and how each plan runs each
    workload.

    Parameters
    ----------
    before, after
        The plans, each with the instance that prices it.
    """
    sides = [_workloads(plan) for _, plan in (before, after)]
    names = sorted({name for side in sides for name in side})
    return {
        "disturbance": disturbance(before[1], after[1])._asdict(),
        "gpus": [len(plan.gpus) for _, plan in (before, after)],
        "cost_per_hour": [_cost(instance, plan) for instance, plan in (before, after)],
        "workloads": [{"name": name, "before": sides[0].get(name), "after": sides[1].get(name)} for name in names],
    }


def _cost(instance: Instance, plan: Plan) -> float | None:
    """The price per hour of a plan's GPUs; None if the price of one GPU is unknown."""
    prices = [
        instance.fleet[entry].price_per_hour if entry >= 0 else None
        for entry in objective_of(instance).entries_of(plan)
    ]
    known = [price for price in prices if price is not None]
    return fsum(known) if len(known) == len(prices) else None


def _workloads(plan: Plan) -> dict[str, dict[str, Any]]:
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

"""Computes the cost of each workload of a plan: the price of every GPU is divided among the replicas on it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from provision.models.hardware.gpu import WHOLE, known_type
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

REQUESTS, HOUR_S = 1e6, 3600


class Cost(NamedTuple):
    """The cost of a workload: per hour, as a fraction of the plan's cost, and per million requests (None if the
    workload has no requests).
    """

    workload: str
    per_hour: float
    part: float
    per_million: float | None


def costs(instance: Instance, plan: Plan) -> list[Cost]:
    """The cost of every workload, the most expensive first; empty if a GPU of the plan has no price.

    The price of a GPU is divided among the replicas on it in proportion to the memory slices of their slices; on a
    shared slice, in proportion to their SM shares. The replicas on a GPU also pay for its idle part.
    """
    per_hour: dict[str, float] = defaultdict(float)
    for gpu, entry in zip(plan.gpus, objective_of(instance).entries_of(plan), strict=True):
        price = instance.fleet[entry].price_per_hour if entry >= 0 else None
        if price is None:
            return []
        sizes = [(one.workload, _memory(gpu.gpu, piece) * share / (sum(piece.held_shares) or 1.0))
                 for piece in gpu.slices for one, share in zip(piece.replicas, piece.held_shares, strict=True)]
        whole = sum(size for _, size in sizes)
        for name, size in sizes:
            per_hour[name] += price * size / whole
    total = sum(per_hour.values()) or 1.0
    found = [_cost(instance, name, value, total) for name, value in per_hour.items()]
    return sorted(found, key=lambda one: -one.per_hour)


def _cost(instance: Instance, name: str, per_hour: float, total: float) -> Cost:
    requests = instance.workload[name].rate_rps * HOUR_S / REQUESTS if name in instance.workload else 0.0
    return Cost(name, per_hour, per_hour / total, per_hour / requests if requests else None)


def _memory(gpu: str, piece: Slice) -> float:
    """The number of memory slices of a slice; a whole GPU counts as one."""
    kind = known_type(gpu)
    return 1.0 if piece.profile == WHOLE or kind is None else float(kind.profiles[piece.profile].memory)

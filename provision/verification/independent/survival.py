"""Checks that after the loss of any one GPU the other GPUs carry every planned rate within its SLO."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .latency_rules import Found, carried_rps, crowded_faults, judge_random, rule_faults
from .records import Instance, Slice
from .servers import Server

Floats = NDArray[np.float64]
LOSS_S = 1.0
"""The seconds of replay for a workload after the loss of one GPU."""


def survival_faults(instance: Instance, servers: dict[str, list[Server]]) -> Iterator[tuple[str, bool]]:
    """Yield a line for everything that no longer holds after a loss, and whether that is certain."""
    seen: set[tuple[str, tuple[tuple[object, ...], ...]]] = set()
    for gpu in sorted({one.piece.gpu for each in servers.values() for one in each}):
        for name, everyone in servers.items():
            left = [one for one in everyone if one.piece.gpu != gpu]
            if len(left) == len(everyone):
                continue
            key = (name, tuple(sorted((*_look(one.piece), one.at) for one in left)))
            if key in seen:
                continue
            seen.add(key)
            yield from _without(instance, gpu, name, left)


def _look(piece: Slice) -> tuple[object, ...]:
    """A key that is equal for slices that behave in the same way."""
    return piece.gpu_type, piece.profile, repr(piece.replicas)


def _without(instance: Instance, gpu: int, name: str, left: list[Server]) -> Iterator[tuple[str, bool]]:
    """Judge a workload on the remaining replicas. It must hold with some division of its rate among them."""
    planned = instance.planned_rps(name)
    if planned <= 0:
        return
    if not left:
        yield f"without GPU {gpu}: {name} has no replica left", True
        return
    carried = np.array([carried_rps(instance, one) for one in left])
    if carried.sum() < planned * (1 - 1e-6):
        yield f"without GPU {gpu}: {name} has replicas for {carried.sum():.6g} of {planned:.6g} requests/s", True
        return
    routed = np.array([one.replica.rate_rps for one in left])
    splits = [np.ones(len(left))] if instance.policy.even_replicas else [routed, carried]
    reasons: list[tuple[str, bool]] = []
    for weights in splits:
        if weights.sum() <= 0:
            continue
        rates = weights * planned / weights.sum()
        if instance.policy.rule == "queueing":
            found = judge_random(instance, left, rates, LOSS_S)
            late: list[Found] = [one for one in found if one.verdict != "holds"]
            reasons = [(one.message, False) for one in late]
        else:
            reasons = [(fault, False) for fault in (*crowded_faults(instance, left, rates.tolist()),
                                                    *rule_faults(instance, left, rates))]
        if not reasons:
            return
    yield from ((f"without GPU {gpu}: {reason}", sure) for reason, sure in reasons)

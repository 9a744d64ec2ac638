"""What the replicas of a plan can carry: their throughput, under ``queueing`` the rate up to which P99 holds."""

from collections import Counter

import numpy as np

from provision.models.performance.operating_points import OperatingPoints


def capacity_rps(instance, plan, predictions):
    """Requests/s that replicas of a plan can carry within their SLOs, by workload.

    Parameters
    ----------
    instance
        The Instance.
    plan
        The Plan.
    predictions
        What the verifier predicts for those of its replicas that count.
    """
    held = Counter()
    for found in predictions:
        held[found.workload] += _carried_rps(instance, plan.gpus[found.gpu].slices[found.slice], found)
    return held


def _carried_rps(instance, piece, found):
    """The capacity of one replica; where a policy lets workloads share its slice, no more than it is routed."""
    if instance.policy.share_slices and len(piece.replicas) > 1:
        return found.rate_rps
    replica = piece.replicas[0]
    counts = np.array([[replica.batch], [replica.processes]])
    point = OperatingPoints(*counts, np.array([found.latency_ms]), np.array([found.throughput_rps]))
    return float(instance.policy.rule.best_points(point, replica.processes, np.array([found.budget_ms]))[0, 0])

"""The rates that the replicas of a plan can serve.

A replica can serve its throughput or, under the rule ``queueing``, the highest rate that keeps its percentile.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from provision.models.performance.operating_points import OperatingPoints
from provision.models.plans.plan import Plan, Slice
from provision.models.plans.report import ReplicaPrediction
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import tokens_rps
from provision.models.problem.stages import as_deployed


def capacity_rps(instance: Instance, plan: Plan, predictions: Iterable[ReplicaPrediction]) -> defaultdict[str, float]:
    """The requests/s that a plan can serve within the SLOs, by workload; 0 for workloads without replicas.

    Parameters
    ----------
    instance
        The Instance.
    plan
        The Plan.
    predictions
        The verifier's predictions of the replicas that are to be counted.
    """
    instance = as_deployed(instance, plan)
    held: defaultdict[str, float] = defaultdict(float)
    for found in predictions:
        gpu = plan.gpus[found.gpu]
        if instance.workload[found.workload].tokens:
            held[found.workload] += tokens_rps(instance, gpu.gpu, gpu.slices[found.slice])
        else:
            held[found.workload] += _carried_rps(instance, gpu.slices[found.slice], found)
    return held


def _carried_rps(instance: Instance, piece: Slice, found: ReplicaPrediction) -> float:
    """The requests/s that one replica can serve; on a slice shared by several workloads, the rate that is routed to it.
    """
    rule, shared = instance.policy.rule_for(instance.workload[found.workload]), len(piece.replicas) > 1
    if shared and (instance.policy.share_slices or rule.random_arrivals):
        return found.rate_rps
    if not rule.random_arrivals:
        return found.throughput_rps
    replica = piece.replicas[0]
    point = OperatingPoints(
        np.array([replica.batch]), np.array([replica.processes]), np.array([found.latency_ms]),
        np.array([found.throughput_rps]),
    )
    return float(rule.best_points(point, replica.processes, np.array([found.budget_ms]))[0, 0])

"""A further bound without steps of rates, for slices shared at routed rates.

The master credits a role with the upper end of its step of rates, which is loose where a workload takes little of a
GPU. The relaxation of mixed slices divides rates freely, but does not tell single slices apart.
"""

import math
from time import perf_counter

from provision.formulations.mixed.slices import Relaxation
from provision.models.contents.alone.segments import best_segments
from provision.models.problem.instance import THROUGHPUT, Instance

NETWORK, ALONE = "closed-network", "measured-segments"


def further_bound(instance: Instance, limit_s: float) -> float:
    """A bound on the objective; 0 where slices are shared in several ways, models vary, or time runs out.

    The same where the latency rule is for random arrivals: the relaxation is of networks' own rule.

    Parameters
    ----------
    instance
        The problem; every workload must be served by some slice of the fleet.
    limit_s
        Seconds that a solver may spend on it.
    """
    gpus = {entry.gpu for entry in instance.fleet}
    kinds = {data.kind for data in instance.performance if data.gpu in gpus}
    varied = any(workload.variants for workload in instance.workloads)
    if varied or instance.objective == THROUGHPUT or instance.policy.rule.random_arrivals:
        return 0.0
    if any(len(instance.sharing_files(gpu)) != 1 for gpu in gpus):
        return 0.0
    return _network_bound(instance, limit_s) if NETWORK in kinds and kinds <= {NETWORK, ALONE} else 0.0


def _network_bound(instance: Instance, limit_s: float) -> float:
    """The bound of mixed slices."""
    relaxation = Relaxation(instance, best_segments(instance))
    relaxation.state()
    found = float(relaxation.proven_bound(perf_counter() + limit_s))
    return found if math.isfinite(found) else 0.0

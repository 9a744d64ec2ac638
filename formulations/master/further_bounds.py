"""Further bounds without steps of rates: for slices shared at routed rates, and for replicas that take turns.

The master credits a role with the upper end of its step of rates, which is loose where a workload takes little of a
GPU. For slices shared at routed rates there is the relaxation of mixed slices, which divides rates freely but does not
tell single slices apart. For gpu-lets there is the set covering over all ways to use a GPU, unless they are too many.
"""

import math
from time import perf_counter

from provision.formulations.mixed.slices import Relaxation
from provision.formulations.turns.parts import TooManyError
from provision.formulations.turns.patterns import all_columns, relaxed_prices
from provision.models.base.tolerances import SOLVER, STRICT
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.turns.tables import GpuletTables
from provision.models.problem.instance import THROUGHPUT, Instance

NETWORK, TURNS, ALONE = "closed-network", "gpulets", "measured-segments"


def further_bound(instance: Instance, limit_s: float) -> float:
    """A bound on the objective; 0 where slices are shared in several ways, models vary, or time runs out.

    The same where the latency rule is for random arrivals: both relaxations are of gpu-lets' and networks' own rules.

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
    if kinds == {TURNS} and len(instance.fleet) == 1:
        return _turns_bound(instance)
    return _network_bound(instance, limit_s) if NETWORK in kinds and kinds <= {NETWORK, ALONE} else 0.0


def _network_bound(instance: Instance, limit_s: float) -> float:
    """The bound of mixed slices."""
    relaxation = Relaxation(instance, best_segments(instance))
    relaxation.state()
    found = float(relaxation.proven_bound(perf_counter() + limit_s))
    return found if math.isfinite(found) else 0.0


def _turns_bound(instance: Instance) -> float:
    """The bound of all ways to use a GPU; 0 where they are too many to list."""
    try:
        columns = all_columns(GpuletTables(instance))
    except TooManyError:
        return 0.0
    gpus = math.ceil(float(relaxed_prices(columns.covered).sum()) * (1 - STRICT) - SOLVER)
    return gpus * instance.weight(instance.fleet[0])

"""A bound for gpu-lets' turns under random arrivals: that of half of the SLO, which asks for less there.

Under any percentile a request may wait for one cycle at least, and no replica is full in every cycle. So whoever takes
turns keeps cycle and execution within the SLO and its rate below a batch in every cycle, which is all that ``half_slo``
asks of it. A replica that is alone on its part must keep batches within half of the SLO there. Where a longer one never
carries more than the shorter ones can, of its workload's rate, it is replaced by one of those: that has a smaller
batch, which slows the other part no more. Then every plan has a plan by half of the SLO on the same GPUs.
"""

import math

import numpy as np

from provision.formulations.master.rated import RatedSearch, rate_oracles
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.formulations.search.problem import Problem
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.search import Search


def temporal_bound(problem: Problem, seconds: float) -> float:
    """A bound on the objective; 0 where slices are shared in other ways, or half of the SLO may ask for more.

    Parameters
    ----------
    problem
        Under a latency rule for random arrivals, to minimise cost or GPUs.
    seconds
        That the search for the bound may take.
    """
    search = Search(seconds)
    files = [data for pool in problem.pools for data in problem.instance.sharing_files(pool.gpu)]
    turns = [data for data in files if isinstance(data, Gpulets)]
    if not turns or len(turns) < len(files) or not all(_asks_less(problem, data) for data in turns):
        return 0.0
    half = Problem(problem.instance.with_policy(latency_budget="half_slo"))
    oracles = rate_oracles(half)
    if oracles is None:
        return 0.0
    rated = RatedSearch(half, oracles, search, "")
    for _ in rated.plans():
        pass
    bound = rated.bound
    return half.objective(bound) if math.isfinite(bound) else 0.0


def _asks_less(problem: Problem, data: Gpulets) -> bool:
    """Whether batches beyond half of the SLO, alone on a part, never carry more than others can, or than is asked."""
    policy, rule = problem.instance.policy, problem.instance.shared_rule
    rows = [(group, name) for group in problem.groups for name in group.models if name in data.models]
    budget_ms = np.array([group.slo_ms * policy.part_of_slo for group, _ in rows])[:, None]
    asked_rps = np.array([group.rate_rps for group, _ in rows])[:, None]
    tables = TurnTables(data, [name for _, name in rows], budget_ms.ravel(), asked_rps.ravel(), rule)
    for share in range(len(tables.shares)):
        alone = share == tables.whole
        for pressure in [ALONE] if alone else np.unique(tables.pressure[tables.rest_of(share)]).tolist():
            busy_ms = tables.beside(share, pressure)
            short = 2 * busy_ms <= budget_ms
            most_rps = np.minimum(rule.capacity_rps(tables.batches, 1, busy_ms, busy_ms, budget_ms), asked_rps)
            shorter_rps = np.where(short, 1000 * tables.batches / busy_ms, 0.0).max(axis=1, keepdims=True)
            if (~short & (most_rps > shorter_rps)).any():
                return False
    return True

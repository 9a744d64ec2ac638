"""Proves a bound for temporal sharing (gpu-lets) under random arrivals: the bound under the rule ``half_slo``, which
demands less of plans.

Why the bound is valid: under a rule for random arrivals, a request may have to wait at least one duty cycle, whatever
the percentile, and no replica has full batches in every cycle. So a replica that takes turns keeps cycle plus execution
within the SLO, and its rate below one batch per cycle. ``half_slo`` demands no more of it than that. Of a replica that
is alone on its part of the GPU, ``half_slo`` demands batches within half of the SLO. Suppose that no longer batch
carries more of the workload's rate than some shorter batch. Then the longer batch can be replaced by the shorter one,
which slows the other part of the GPU no more. So for every plan there is a plan under ``half_slo`` on the same GPUs.
"""

import math

import numpy as np

from provision.formulations.master.rates.rated import RatedSearch
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.formulations.search.problem import Problem
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.search import Search


def temporal_bound(problem: Problem, seconds: float) -> float:
    """A lower bound on the objective; 0 if slices are also shared in other ways, or if ``half_slo`` may demand more.

    Parameters
    ----------
    problem
        A problem with a latency rule for random arrivals, and cost or GPUs to be minimised.
    seconds
        Time limit of the search for the bound.
    """
    search = Search(seconds)
    files = [data for pool in problem.pools for data in problem.instance.sharing_files(pool.gpu)]
    turns = [data for data in files if isinstance(data, Gpulets)]
    if not turns or len(turns) < len(files) or not all(_asks_less(problem, data) for data in turns):
        return 0.0
    half = Problem(problem.instance.with_policy(latency_budget="half_slo"))
    rated = RatedSearch(half, rates_of(half, search.within()), search, "")
    for _ in rated.plans():
        pass
    bound = rated.bound
    return half.objective(bound) if math.isfinite(bound) else 0.0


def _asks_less(problem: Problem, data: Gpulets) -> bool:
    """Whether the rule ``half_slo`` costs no throughput on parts with a single replica.

    It costs none if no batch longer than half of the SLO carries more of its workload's rate than the best shorter
    batch.
    """
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

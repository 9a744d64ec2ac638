"""Bounds from easier instances: similar workloads are merged into one, or gpu-lets get the rule ``half_slo``.

**Merged workloads** give a bound at once for many workloads; the few that remain are bounded by prices. Let one
workload have the rates of several workloads with the same models and the same traffic, the longest of their SLOs, and
no limits on its replicas. Then every plan of the several is a plan of the one: its replicas stay valid, and together
they carry its rate. So the several need at least the GPUs that the one needs. Patterns that carry rates prove how many
these are (`rated`). They distinguish only few workloads, but take no longer if rates are higher.

**Temporal sharing** (gpu-lets) under random arrivals has the bound under the rule ``half_slo``, which demands less of
plans. Why it is valid: under a rule for random arrivals, a request may have to wait at least one duty cycle, whatever
the percentile, and no replica has full batches in every cycle. So a replica that takes turns keeps cycle plus execution
within the SLO, and its rate below one batch per cycle. ``half_slo`` demands no more of it than that. Of a replica that
is alone on its part of the GPU, ``half_slo`` demands batches within half of the SLO. Suppose that no longer batch
carries more of the workload's rate than some shorter batch. Then the longer batch can be replaced by the shorter one,
which slows the other part of the GPU no more. So for every plan there is a plan under ``half_slo`` on the same GPUs.
"""

import math
from collections.abc import Iterator

import numpy as np

from provision.formulations.master.rated import RatedSearch
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import MOST_NAMED
from provision.formulations.pricing.shared_mig.shared_relaxation import further_bound, is_relaxed
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.formulations.values.nodes import classes_of
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search


def merged(instance: Instance, most: int) -> Instance:
    """The instance with one workload for each class of similar workloads, in about ``most`` classes. Workloads without
    requests are left out, and so are all limits on replicas. The instance may not have workflows.
    """
    free = {"min_replicas": 1, "max_replicas": None, "max_share_per_gpu": 1.0}
    instance = instance.replace(workloads=[one.model_copy(update=free) for one in instance.workloads])
    every_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    served, found = np.flatnonzero(every_rps > 0), []
    for alike in classes_of(instance, served, every_rps[served], most):
        several = [instance.workloads[at] for at in alike.members.tolist()]
        rate_rps = sum(one.rate_rps for one in several)
        found.append(max(several, key=lambda one: one.slo_ms).model_copy(update={"rate_rps": rate_rps}))
    return instance.replace(workloads=found)


def merged_bounds(instance: Instance, search: Search) -> Iterator[float]:
    """Yield bounds on the objective over ever more merged workloads until the time limit: infinite if the fleet is too
    small, 0 if nothing was proven in time.

    It yields nothing where the relaxation does not hold, or for few workloads, with which it is quick anyway.
    """
    if instance.workflows or len(instance.workloads) <= MOST_NAMED or not is_relaxed(instance):
        return
    before = 0
    for most in range(1, MOST_NAMED + 1):
        few = merged(instance, most)
        if len(few.workloads) > MOST_NAMED or not search.left_s or proved_infeasible(few, best_segments(few)):
            return  # some may be served only beside others
        if len(few.workloads) > before:
            before = len(few.workloads)
            yield further_bound(few, search.left_s)


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

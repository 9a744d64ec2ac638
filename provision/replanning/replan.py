"""``provision.replan``: the plan for new demand with the least sum of cost and disturbance, verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provision.formulations.replanning.counts import ALLOWED, Replanned, replan_counts
from provision.formulations.replanning.model import Weights
from provision.heuristics.parvagpu.changes import reconfigured
from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError, MethodError
from provision.models.base.known import known
from provision.models.plans.disturbance import Disturbance, disturbance, going_on
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.replanning.around import replan_around
from provision.solving.size import check_size
from provision.solving.solve import check_time_limit
from provision.sweeps.run import solved
from provision.verification.capacity import capacity_rps
from provision.verification.verify import verify

if TYPE_CHECKING:
    from provision.models.problem.instance import Instance

EXACTLY, PARVAGPU = METHODS = "auto", "parvagpu"
CHANGE_COST = 0.02
"""The default cost of a change, as a fraction of the price of the cheapest GPU."""
SHARING = frozenset({"interference", "other_sharing", "gpulets", "share_slices", "max_share_per_gpu"})
"""Features of instances for which not all patterns of slices can be listed."""
BEYOND = frozenset({"max_throughput", "survive", "even_replicas"})
"""Features of instances that the integer program does not support."""
EXACT = 0.5
"""Fraction of the time for the integer program when it may fail to list all patterns."""
KNOWN = 0.1
"""The largest fraction of the time for a first plan from scratch, if the integer program needs one."""
WEIGHTS = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 1.0, 4.0)
"""Costs of a change along the trade-off curve, as fractions of the price of the cheapest GPU."""


@dataclass(frozen=True)
class Replan:
    """The result of replanning.

    ``objective`` is the cost of the plan alone, ``weighted`` its cost plus that of the changes, and ``bound`` a proven
    bound on the weighted sum. ``changes`` are counted from the two plans. ``staying`` is the least fraction of a
    workload's planned rate that its unchanged replicas can carry while everything else changes. Without a plan the
    numbers are None.
    """

    status: str
    plan: Plan | None
    report: Report | None
    objective: float | None
    weighted: float | None
    bound: float | None
    changes: Disturbance | None
    staying: float | None
    seconds: float

    def summary(self) -> dict[str, Any]:
        """The JSON object of ``provision replan --json``, except for instance and ``plan_file``."""
        changes = self.changes._asdict() if self.changes else dict.fromkeys(Disturbance._fields)
        return {
            "status": self.status, "objective": self.objective, "gpus": len(self.plan.gpus) if self.plan else None,
            **changes, "staying": self.staying, "weighted": self.weighted, "bound": self.bound,
            "seconds": round(self.seconds, 3),
        }


def replan(
    instance: Instance, plan: Plan, change_cost: float | None = None, allow: str = "slices",
    time_limit_s: float = 60.0, gap: float = 1e-6, others: Sequence[Plan] = (), method: str = EXACTLY,
) -> Replan:
    """Replan: exactly if all patterns of slices can be listed, else around GPUs that are kept.

    Parameters
    ----------
    instance
        The Instance with the new demand.
    plan
        The Plan that runs.
    change_cost
        The cost of a destroyed slice, and of a started replica, in units of the objective; None for CHANGE_COST times
        the price of the cheapest GPU.
    allow
        What may change: ``batches`` (only batch sizes and rate shares: no restart), ``replicas`` (replicas may start
        and stop, also in new slices and on new GPUs, but no slice is destroyed) or ``slices`` (everything).
    time_limit_s, gap
        When to stop searching: after these seconds, or at this relative gap of the weighted sum.
    others
        Further plans to compare, if the search is not exact.
    method
        ``auto``, or ``parvagpu`` for ParvaGPU's own procedure, which weighs nothing.

    Returns
    -------
    Replan

    Raises
    ------
    InputError
        For a change cost, level or method that does not exist, a time limit out of range, a plan that cannot run, or an
        instance out of all proportion.
    UnsupportedError
        For the objective max_throughput.
    """
    watch = Stopwatch()
    if allow not in ALLOWED:
        raise InputError(f"allow {allow!r}: use one of {', '.join(ALLOWED)}")
    if method not in METHODS:
        raise InputError(f"replan: unknown method {method!r}; use one of {', '.join(METHODS)}")
    change_cost = cost_of_change(instance, change_cost)
    check_time_limit(time_limit_s)
    check_size(instance)
    if method == PARVAGPU:
        return judged(instance, plan, reconfigured(instance, plan), "feasible", None, change_cost, watch)
    weights = Weights(change_cost, change_cost, allow)
    if needs(instance) & BEYOND:
        found = replan_around(instance, plan, change_cost, allow, time_limit_s, others)
    elif needs(instance) & SHARING:
        found = _either(instance, plan, weights, time_limit_s, gap, others)
    else:
        found = replan_counts(instance, plan, weights, lambda one: verify(instance, one).ok, time_limit_s, gap)
    new = found.plan
    if new is None:
        return Replan(found.status, None, None, None, None, None, None, None, watch.elapsed_s)
    return judged(instance, plan, new, found.status, found.bound, change_cost, watch)


def _either(instance: Instance, plan: Plan, weights: Weights, limit_s: float, gap: float, others: Sequence[Plan]
            ) -> Replanned:
    """The plan of the integer program if that proves it optimal, else the better of it and the plan around kept
    GPUs."""
    def weighted(one: Plan) -> float:
        return objective_of(instance).value(one) + weights.replica_cost * disturbance(plan, one).moved

    def holds(one: Plan) -> bool:
        return verify(instance, one).ok

    known: list[Plan] = []
    if weights.allow == "slices" and any(one.max_share_per_gpu < 1 for one in instance.workloads):
        first = solved(instance, {"method": "auto", "time_limit_s": KNOWN * limit_s}, slack="no").plan
        known = [one for one in [*others, *_plans(first)] if holds(one)]  # tells how many GPUs may be of use
    exact = replan_counts(instance, plan, weights, holds, EXACT * limit_s, gap,
                          min(map(weighted, known), default=float("inf")))
    if exact.status == "optimal" or exact.status.startswith("infeasible"):
        return exact
    left_s = (1 - EXACT) * limit_s
    around = replan_around(instance, plan, weights.replica_cost, weights.allow, left_s, [*others, *_plans(exact.plan)])
    bound = max(exact.bound, around.bound)
    if around.plan is None:
        return around._replace(bound=bound)
    best = min([around.plan, *_plans(exact.plan)], key=weighted)
    return Replanned("optimal" if objective_of(instance).proved(weighted(best), bound) else "feasible", bound, best)


def _plans(plan: Plan | None) -> list[Plan]:
    return [] if plan is None else [plan]


def cost_of_change(instance: Instance, change_cost: float | None) -> float:
    """The cost of a change in units of the objective: the given one, or CHANGE_COST times the cheapest GPU's price.

    Raises
    ------
    InputError
        When it is below 0 or infinite.
    """
    if change_cost is None:
        return CHANGE_COST * min(map(objective_of(instance).weight, instance.fleet))
    if not 0 <= change_cost < float("inf"):
        raise InputError(f"change cost {change_cost}: should be 0 or more")
    return change_cost


def judged(
    instance: Instance, before: Plan, new: Plan, status: str, bound: float | None, change_cost: float, watch: Stopwatch
) -> Replan:
    """Verify a new plan and count its changes; returns the Replan.

    Parameters
    ----------
    instance, before, new
        The Instance with the new demand, the Plan that runs, and the new Plan.
    status, bound
        The status of the new plan, and a proven bound on the weighted sum.
    change_cost
        The cost of a change.
    watch
        A Stopwatch started when replanning began.

    Raises
    ------
    MethodError
        When the verifier rejects the plan.
    """
    report = verify(instance, new)
    if not report.ok:
        raise MethodError(f"replanning made a plan that fails: {report.violations[0].message}")
    changes, value = disturbance(before, new), objective_of(instance).value(new)
    return Replan(status, new, report, value, value + change_cost * changes.moved, bound, changes,
                  _staying(instance, before, new, report), watch.elapsed_s)


def curve(
    instance: Instance, plan: Plan, allow: str = "slices", time_limit_s: float = 60.0,
    weights: Sequence[float] = WEIGHTS,
) -> list[tuple[float, Replan]]:
    """The trade-off between cost and changes: replan once for every cost of a change, and keep the undominated plans.

    Of several plans with the same cost and the same changes one is kept. A plan is dropped if another one costs no
    more, changes no more, and is better in one of the two. If there is no plan at all the first result is returned.

    Parameters
    ----------
    weights
        Costs of a change, as fractions of the price of the cheapest GPU.

    Returns
    -------
    list of (weight, Replan)
    """
    cheapest = min(map(objective_of(instance).weight, instance.fleet))
    found = [(weight, replan(instance, plan, weight * cheapest, allow, time_limit_s)) for weight in weights]
    scores = {
        weight: (known(one.objective), known(one.changes).moved) for weight, one in found if one.plan is not None
    }
    best: dict[tuple[float, int], float] = {}
    for weight, score in scores.items():
        if not any(other != score and other[0] <= score[0] and other[1] <= score[1] for other in scores.values()):
            best.setdefault(score, weight)
    return [pair for pair in found if pair[0] in best.values()] or found[:1]


def _staying(instance: Instance, before: Plan, after: Plan, report: Report) -> float:
    """The least fraction of a workload's planned rate that the replicas common to both plans can carry."""
    on = going_on(before, after)
    held = capacity_rps(instance, after, [found for found in report.predictions if (found.gpu, found.slice) in on])
    planned = {one.name: instance.planned_rps(one) for one in instance.workloads if one.rate_rps > 0}
    return min((min(1.0, held[name] / rate) for name, rate in planned.items()), default=1.0)

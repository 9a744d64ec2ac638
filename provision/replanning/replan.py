"""``provision.replan``: the plan with the least sum of cost and disturbance, verified; and the curve between both.

``replan_lost`` does the same after the loss of a GPU of the running plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provision.formulations.replanning.program import ALLOWED, Replanned, replan_counts
from provision.heuristics.inss import inss
from provision.heuristics.parvagpu import changes
from provision.instances.files.files import FilePath
from provision.instances.read import read, read_plan
from provision.models.base.clock import Deadline, Stopwatch, end_if_asked
from provision.models.base.errors import InputError, MethodError
from provision.models.base.objects import known
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.disturbance import Disturbance, disturbance, going_on
from provision.models.plans.plan import Plan, carried_rps
from provision.models.plans.report import Report
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.replanning.around import replan_around, with_spares
from provision.solving.notes import check_size
from provision.solving.solve import check_time_limit, solve
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

PROCEDURES = {changes.NAME: changes.reconfigured, inss.NAME: inss.reconfigured}
"""The procedures of papers' systems for running plans, which do not weigh changes."""
METHODS = "auto", *PROCEDURES
CHANGE_COST = 0.02
"""The default cost of a change (a destroyed slice or a started replica), as a fraction of the price of the cheapest
GPU.
"""
SHARING = frozenset({"interference", "other_sharing", "gpulets", "share_slices", "max_share_per_gpu"})
"""The features of instances for which not all patterns of slices can be listed."""
BEYOND = frozenset({"max_throughput", "survive", "even_replicas", "places"})
"""The features of instances that the integer program does not support."""
EXACT = 0.5
"""The fraction of the time for the integer program if it may fail to list all patterns."""
KNOWN = 0.1
"""The largest fraction of the time for a first plan from scratch, if the integer program needs one."""
WEIGHTS = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 1.0, 4.0)
"""The costs of a change for which the trade-off curve is computed, as fractions of the price of the cheapest GPU."""


@dataclass(frozen=True)
class Replan:
    """The result of replanning.

    ``objective`` is the cost of the plan alone, ``weighted`` is the cost of the plan plus the cost of the changes, and
    ``bound`` is a proven bound on ``weighted`` (``bound_of`` in JSON), not on ``objective``. ``changes`` has the
    numbers of changes from the old plan to the new. ``staying`` is the least fraction of a workload's planned rate
    that its unchanged replicas can carry while everything else changes; ``unserved`` names the workloads that have no
    such replica. Without a plan the numbers are None, and ``reason`` may tell why.
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
    reason: str = ""
    unserved: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision replan --json`` prints, except for the instance and ``plan_file``."""
        changes = self.changes._asdict() if self.changes else dict.fromkeys(Disturbance._fields)
        return {
            "status": self.status, "objective": self.objective, "gpus": len(self.plan.gpus) if self.plan else None,
            **changes, "staying": self.staying, "weighted": self.weighted, "bound": self.bound,
            "bound_of": "weighted", "seconds": round(self.seconds, 3), "reason": self.reason,
        }


def replan(instance: Instance | FilePath, plan: Plan | FilePath, change_cost: float | None = None,
           allow: str = "slices", time_limit_s: float = 60.0, gap: float = 1e-6, others: Sequence[Plan | FilePath] = (),
           method: str = METHODS[0]) -> Replan:
    """Replan, by an integer program if all patterns of slices can be listed, otherwise around GPUs that are kept.

    Parameters
    ----------
    instance
        The Instance with the new demand, its shipped name or its path.
    plan
        The Plan that runs, or its path.
    change_cost
        The cost of each destroyed slice and of each started replica, in units of the objective; None for CHANGE_COST
        times the price of the cheapest GPU.
    allow
        What may change: ``batches`` (only batch sizes and rate shares: no restart), ``replicas`` (replicas may start
        and stop, also in new slices and on new GPUs, but no slice is destroyed) or ``slices`` (everything).
    time_limit_s, gap
        The search ends after these seconds, or at this relative gap of the weighted sum.
    others
        Further plans to compare, if the search is not exact.
    method
        ``auto``, or the procedure of a paper's system, which does not weigh changes: ``parvagpu`` or ``inss``.

    Returns
    -------
    Replan

    Raises
    ------
    InputError
        If the change cost or the time limit is out of range, ``allow`` or ``method`` is unknown, the plan cannot run,
        or the instance is far too large.
    UnsupportedError
        If the objective is max_throughput and the method ``auto``, or a procedure does not fit the instance or plan.
    """
    watch = Stopwatch()
    instance, plan = read(instance), read_plan(plan, instance)
    further = [read_plan(one, instance) for one in others]
    if allow not in ALLOWED:
        raise InputError(f"allow {allow!r}: use one of {', '.join(ALLOWED)}")
    if method not in METHODS:
        raise InputError(f"replan: unknown method {method!r}; use one of {', '.join(METHODS)}")
    change_cost = cost_of_change(instance, change_cost)
    check_time_limit(time_limit_s)
    check_size(instance)
    if method in PROCEDURES:
        changed = PROCEDURES[method](instance, plan)
        if late := verify(instance, changed).violated:
            reason = f"{method} finds no plan that keeps SLO and rate of {', '.join(late)}; use solve --method auto"
            return Replan("unknown", None, None, None, None, None, None, None, watch.elapsed_s, reason)
        return judged(instance, plan, changed, "feasible", None, change_cost, watch)
    if needs(instance) & BEYOND or (instance.power and instance.power.limit_w):
        found = replan_around(instance, plan, change_cost, allow, time_limit_s, further)
    elif needs(instance) & SHARING:
        found = _either(instance, plan, change_cost, allow, time_limit_s, gap, further)
    else:
        found = replan_counts(instance, plan, change_cost, allow, lambda one: verify(instance, one).ok, time_limit_s,
                              gap)
    new = found.plan
    if new is None:
        return Replan(found.status, None, None, None, None, None, None, None, watch.elapsed_s)
    new = _unmoved(instance, plan, with_spares(instance, plan, new), change_cost)
    return judged(instance, plan, new, found.status, found.bound, change_cost, watch)


def _either(instance: Instance, plan: Plan, change_cost: float, allow: str, limit_s: float, gap: float,
            others: Sequence[Plan]) -> Replanned:
    """The plan of the integer program if the program proves it optimal; otherwise the better of this plan and the plan
    around kept GPUs.
    """
    def weighted(one: Plan) -> float:
        return objective_of(instance).value(one) + change_cost * disturbance(plan, one).moved

    def holds(one: Plan) -> bool:
        return verify(instance, one).ok

    known, until = list[Plan](), Deadline(limit_s)
    if allow == "slices" and any(one.max_share_per_gpu < 1 for one in instance.workloads):
        first = solve(instance, time_limit_s=KNOWN * limit_s, replay=False, slack="no").plan
        known = [one for one in [*others, *_plans(first)] if holds(one)]  # a value that bounds the number of GPUs
    exact = replan_counts(instance, plan, change_cost, allow, holds, EXACT * limit_s, gap,
                          min(map(weighted, known), default=float("inf")))
    if exact.status == "optimal" or exact.status.startswith("infeasible"):
        return exact
    left_s = max(until.left_s, (1 - EXACT) * limit_s)
    around = replan_around(instance, plan, change_cost, allow, left_s, [*others, *_plans(exact.plan)])
    bound = max(exact.bound, around.bound)
    if around.plan is None:
        return around._replace(bound=bound)
    best = min([around.plan, *_plans(exact.plan)], key=weighted)
    return Replanned("optimal" if objective_of(instance).proved(weighted(best), bound) else "feasible", bound, best)


def _unmoved(instance: Instance, plan: Plan, new: Plan, change_cost: float) -> Plan:
    """The plan that runs, with its shares of the traffic, if it holds and the new plan is no better; else the new one.
    """
    value, carried = objective_of(instance).value, carried_rps(plan.gpus)
    if value(plan) > (value(new) + change_cost * disturbance(plan, new).moved) * (1 + TOLERANCE):
        return new
    grown = {one.name: instance.planned_rps(one) / carried[one.name] for one in instance.workloads if carried[one.name]}
    factors = {name: factor for name, factor in grown.items() if abs(factor - 1) > TOLERANCE}
    same = instance.plan_of(plan.method, plan.with_rates(factors).gpus)
    return same if verify(instance, same).ok else new


def _plans(plan: Plan | None) -> list[Plan]:
    return [] if plan is None else [plan]


def cost_of_change(instance: Instance, change_cost: float | None) -> float:
    """The cost of a change in units of the objective: the given cost, or CHANGE_COST times the price of the cheapest
    GPU. Raises InputError if the given cost is below 0 or infinite.
    """
    if change_cost is None:
        weight = objective_of(instance).weight
        return CHANGE_COST * min(known(one.price_per_hour) if one.committed else weight(one) for one in instance.fleet)
    if not 0 <= change_cost < float("inf"):
        raise InputError(f"change cost {change_cost}: should be 0 or more")
    return change_cost


def judged(instance: Instance, before: Plan, new: Plan, status: str, bound: float | None, change_cost: float,
           watch: Stopwatch) -> Replan:
    """Verify a new plan and count its changes; returns the Replan.

    Parameters
    ----------
    instance, before, new
        The instance with the new demand, the plan that runs, and the new plan.
    status, bound
        The status of the new plan, and a proven bound on the weighted sum.
    change_cost
        The cost of a change, in units of the objective.
    watch
        A Stopwatch started when replanning began.

    Raises
    ------
    MethodError
        If the verifier rejects the plan.
    """
    report = verify(instance, new)
    if not report.ok:
        raise MethodError(f"replanning made a plan that fails: {report.violations[0].message}")
    changes, objective = disturbance(before, new), objective_of(instance)
    value = objective.value(new)
    served = _served(instance, before, new, report)
    return Replan(status, new, report, value, value + objective.sense * change_cost * changes.moved, bound, changes,
                  min(served.values(), default=1.0), watch.elapsed_s,
                  unserved=tuple(name for name, part in served.items() if part == 0))


def curve(instance: Instance, plan: Plan, allow: str = "slices", time_limit_s: float = 60.0,
          weights: Sequence[float] = WEIGHTS) -> list[tuple[float, Replan]]:
    """The trade-off between cost and changes: replan once for every cost of a change, and keep the plans that no other
    plan dominates. A plan is dropped if another plan costs no more, changes no more, and is better in one of the two.
    Of several plans with the same cost and the same number of changes one is kept. If there is no plan at all, the
    first result is returned.

    Parameters
    ----------
    weights
        The costs of a change, as fractions of the price of the cheapest GPU.

    Returns
    -------
    list of (weight, Replan)
    """
    cheapest = min(map(objective_of(instance).weight, instance.fleet))
    found = list[tuple[float, Replan]]()
    for weight in weights:
        end_if_asked()
        found.append((weight, replan(instance, plan, weight * cheapest, allow, time_limit_s)))
    scores = {
        weight: (known(one.objective), known(one.changes).moved) for weight, one in found if one.plan is not None
    }
    best: dict[tuple[float, int], float] = {}
    for weight, score in scores.items():
        if not any(other != score and other[0] <= score[0] and other[1] <= score[1] for other in scores.values()):
            best.setdefault(score, weight)
    return [pair for pair in found if pair[0] in best.values()] or found[:1]


def _served(instance: Instance, before: Plan, after: Plan, report: Report) -> dict[str, float]:
    """For each workload the fraction of its planned rate that the replicas common to both plans can carry (at most 1).
    """
    on = going_on(before, after)
    held = capacity_rps(instance, after, [found for found in report.predictions if (found.gpu, found.slice) in on])
    planned = {one.name: instance.planned_rps(one) for one in instance.workloads if one.rate_rps > 0}
    return {name: min(1.0, held[name] / rate) for name, rate in planned.items()}


def after_loss(instance: Instance, plan: Plan, lost: int) -> tuple[Instance, Plan]:
    """The pair (the instance with one GPU less if its fleet has counts, the part of the plan that still runs).

    Parameters
    ----------
    instance, plan
        The instance, and the plan that ran.
    lost
        The index of the lost GPU in the plan.

    Raises
    ------
    InputError
        If the plan has no such GPU, or the fleet lacks the type of the GPU.
    """
    if not 0 <= lost < len(plan.gpus):
        known = f"which has GPUs 0 to {len(plan.gpus) - 1}" if plan.gpus else "which has none"
        raise InputError(f"lost {lost}: is not in the plan, {known}; name one of its GPUs")
    entry = objective_of(instance).entries_of(plan)[lost]
    if entry < 0:
        raise InputError(f"lost {lost}: the fleet of {instance.name} has no {plan.gpus[lost].gpu}; correct the plan")
    fleet = tuple(
        one.model_copy(update={"count": max(one.count - 1, 0)}) if at == entry and one.count is not None else one
        for at, one in enumerate(instance.fleet)
    )
    left = tuple(gpu for at, gpu in enumerate(plan.gpus) if at != lost)
    return instance.replace(fleet=fleet), plan.model_copy(update={"gpus": left})


def replan_lost(instance: Instance, plan: Plan, lost: int, change_cost: float | None = None, allow: str = "slices",
                time_limit_s: float = 60.0) -> Replan:
    """Replan after the loss of a GPU.

    If the search is not exact, one of the compared plans puts all replicas of the lost GPU on another GPU and keeps the
    rest.

    Parameters
    ----------
    instance, plan, lost
        The instance with the lost GPU, the plan that ran, and the index of the lost GPU in this plan.
    change_cost, allow, time_limit_s
        As for ``replan``.

    Returns
    -------
    Replan
        The result; its changes are counted against the part of the plan that still runs.

    Raises
    ------
    InputError
        If there is no such GPU, and in the cases of ``replan``.
    UnsupportedError
        As for ``replan``.
    """
    left, running = after_loss(instance, plan, lost)
    restored = running.model_copy(update={"gpus": (*running.gpus, plan.gpus[lost]), "digest": left.digest})
    return replan(left, running, change_cost, allow, time_limit_s, others=(restored,))

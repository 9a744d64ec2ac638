"""Most throughput where slices of different kinds are shared: serve all rates, then fill the fleet."""

from dataclasses import replace

from provision.formulations.master import solve as master
from provision.formulations.master.most_throughput import filled, throughput_bound
from provision.heuristics.core import greedy
from provision.models.contents.alone.feasibility import unservable
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.problem import Problem
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Search, Status
from provision.solving.parts import whole_plan

SERVE_SHARE = 0.5
"""Part of the time that the plan which serves all rates may take."""


def fill_fleet(instance: Instance, search: Search) -> Outcome:
    """The best of a plan to begin with and the plan of fewest GPUs, filled, and a bound on all plans."""
    refused = unservable(instance, best_segments(instance))
    if refused:
        return Outcome("infeasible", "proved", reason="; ".join(refused))
    problem = Problem(instance)
    bound = throughput_bound(problem)
    fewest = instance.replace(objective="min_gpus")
    begun = search.apart(SERVE_SHARE)
    if greedy.METHODS[0].features >= needs(fewest):
        begun = replace(begun, start=greedy.solve(fewest, begun).plan)
    served = master.solve(fewest, begun)
    if served.status == "infeasible":
        return served
    plans = [filled(problem, whole_plan(instance, plan)) for plan in (search.start, served.plan) if plan is not None]
    best = max(plans, key=instance.value, default=None)
    status: Status = "feasible" if best is not None else "unknown"
    return Outcome(status, "completed", best, bound, reason="" if best else served.reason)

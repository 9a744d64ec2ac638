"""Most throughput on a fixed fleet by the master program: bound, contents, and plans from them."""

from collections.abc import Callable
from time import perf_counter

from provision.formulations.master.full_plans import full_plan
from provision.formulations.master.fullest import FullFleet
from provision.models.contents.alone.feasibility import refusal
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.capacities import capacities_of
from provision.models.contents.problem import Problem
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search, Termination

BOUND_SHARE, SEEK_SHARE, CHOOSE_SHARE = 0.3, 0.5, 0.5
"""Parts of the time left that the bound, the search for contents and each integer program may take."""
SERVE_SHARE = 0.5
"""Part of the time left that a plan which serves all rates on few GPUs may take, where the contents have none."""


def fill_fleet(instance: Instance, search: Search, name: str,
               serve: Callable[[Instance, Search], Outcome]) -> Outcome:
    """Plan an instance whose objective is throughput; Ctrl-C returns the best plan so far.

    Parameters
    ----------
    instance, search
        The problem and the search.
    name
        The method's, for its plans.
    serve
        What serves all rates on few GPUs.
    """
    refused = refusal(instance, best_segments(instance), search.started)
    if refused:
        return refused
    problem, progress = Problem(instance), Progress(instance, search)
    built, reason = perf_counter() - search.started, ""
    termination: Termination = "completed"
    try:
        fleet = FullFleet(problem, capacities_of(problem))
        progress.prove(fleet.bound)
        if progress.plan is not None:
            fleet.add_plan(progress.plan)
        for bound in fleet.rounds(perf_counter() + search.left_s * BOUND_SHARE):
            progress.prove(bound)
        if not progress.proved:
            fleet.seek(perf_counter() + search.left_s * SEEK_SHARE)
            progress.offer(_best(problem, fleet, search, name))
        if progress.plan is None:
            served = serve(instance.replace(objective="min_gpus"), search.apart(SERVE_SHARE))
            if served.status == "infeasible":
                return served
            reason = served.reason
            if served.plan is not None:
                if fleet.add_plan(served.plan):
                    progress.offer(served.plan.model_copy(update={"digest": instance.digest}))
                progress.offer(_best(problem, fleet, search, name))
    except KeyboardInterrupt:
        termination = "stopped"
    return progress.outcome("proved" if progress.proved else termination, reason, built)


def _best(problem: Problem, fleet: FullFleet, search: Search, name: str) -> Plan | None:
    """The plan of the contents so far; None when they make none."""
    found = fleet.chosen(search.left_s * CHOOSE_SHARE)
    return None if found is None else full_plan(problem, *found, name)

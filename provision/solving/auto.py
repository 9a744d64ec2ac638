"""The method ``auto``, a sequence of steps: a fast plan first, then the master program until proven or out of time.

Most steps begin with the best plan so far. The answer is the best plan and the best bound of all steps. Among plans of
the same cost, one with slack is preferred (``provision.solving.slack``).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from provision.formulations.assignment import cpsat
from provision.heuristics.core import greedy, lns
from provision.heuristics.gpulets import ideal
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.solving import master, values
from provision.solving.policies import even_replicas, surviving
from provision.solving.schedule import SCHEDULE
from provision.solving.slack import wants_slack, what_fits, with_slack
from provision.solving.steps import (
    Shape,
    Step,
    isolated,
    last_plan,
    least_of,
    narrower,
    of_others,
    onward,
    where_able,
)


def run(instance: Instance, search: Search) -> Outcome:
    """Run the steps; the outcome has the best plan and the best bound of all steps. Instances with ``places``,
    ``survive`` or ``even_replicas`` are planned by way of other instances, each of which comes back here.
    """
    slack = wants_slack(instance, search)  # refuses a wrong parameter before anything else
    if instance.places is not None:
        from provision.solving.placing.placed import placed  # CP-SAT loads slowly

        return placed(instance, search, run)
    if instance.policy.survive:
        return surviving(instance, search, run)
    if instance.policy.even_replicas:
        return even_replicas(instance, search, run)
    progress, found = Progress(instance, search), Outcome("unknown", "time_limit")
    built, reason, first_s, least = 0.0, "", 0.0, least_of(instance)
    progress.prove(least)
    for step, seconds in _steps(instance, search):
        left_s = progress.search.left_s - progress.writing_s
        if left_s <= 0:
            return progress.outcome("time_limit", reason, built)
        # If the first step that was not cut off took longer than ``slow_s``, all steps have more time in proportion.
        begun = onward(progress, least, min(seconds * max(first_s / SCHEDULE.slow_s, 1.0), left_s))
        found = step(instance, begun)
        if found.termination == "completed":
            first_s = first_s or begun.elapsed_s
        built, reason = built + found.build_seconds, found.reason or reason
        if found.status == "infeasible" and progress.plan is None:
            told = what_fits(instance, greedy.METHODS[0], progress.search.apart(SCHEDULE.explain_s))
            return replace(found, reason=found.reason + told)
        if found.plan is not None:
            progress.offer(found.plan)
        progress.prove(found.bound)
        if progress.enough:
            break
    ended: Termination = "completed" if progress.enough else found.termination  # enough: within the gap asked for
    ended = "proved" if progress.proved else ended
    if progress.plan is not None and ended in ("proved", "completed") and slack:
        seconds = max(SCHEDULE.slack_s, SCHEDULE.slack_part * progress.search.elapsed_s)
        progress.plan = with_slack(instance, progress.plan, progress.bound, greedy.solve,
                                   progress.search.anew(time_limit_s=min(seconds, progress.search.left_s)))
    return progress.outcome(ended, reason, built)


def _steps(instance: Instance, search: Search) -> Iterator[tuple[Step, float]]:
    """Yield the steps, each with the seconds that it may take."""
    if search.kept is not None and search.kept.fits(instance):  # a Planner goes on from its last plan and columns
        yield last_plan, math.inf
        yield master.solve, math.inf
    shape, whole = Shape(instance), where_able(greedy.METHODS[0])
    quick = search.parameters.get("greedy") != "no"  # "no": a detour (`solving.detour`) has a plan already
    fills = quick and not shape.mixes
    if shape.turns:
        yield ideal.METHODS[0].run, SCHEDULE.quick_s
        yield master.solve, SCHEDULE.turns_s
    # A plan within a second, and a bound within two. Where greedy fills slices, narrower instances are planned sooner
    # than the whole; otherwise it mixes segments by a linear program, which is quick.
    if fills:
        yield of_others(greedy.METHODS[0], isolated), SCHEDULE.isolated_s
    elif quick:
        yield whole, math.inf
    if shape.pooled:
        yield values.solve, math.inf
        return
    yield master.merged_bound, math.inf
    # Better plans: greedy on narrower instances and on the whole, and ruin and recreate.
    if quick and shape.many:
        yield of_others(greedy.METHODS[0], narrower), math.inf
    if fills:
        yield whole, SCHEDULE.filling_s if shape.throughput else math.inf  # for most throughput, it would go on
    if shape.classed:
        yield where_able(lns.METHODS[0]), SCHEDULE.walk_s
    # Plans and bounds of all kinds, until proven or out of time.
    if master.shares_networks(instance) and not shape.throughput:
        yield master.first_answers, SCHEDULE.shared_s
    yield master.solve, math.inf
    if not shape.throughput:
        yield where_able(cpsat.METHODS[0]), math.inf


PARAMETERS = {"slack": "yes"}
METHODS = (
    Method(
        name="auto",
        summary="greedy first, then the master program until proved or out of time; Ctrl-C keeps the best",
        run=run,
        exact=True,
        source="this package",
        features=ISOLATED | {"tokens", "max_replicas", "interference", "gpulets", "other_sharing", "share_slices",
                             "random_interference", "random_turns", "random_slices", "survive",
                             "even_replicas", "max_throughput", "full_batches", "places"},
        parameters=PARAMETERS,
    ),
)

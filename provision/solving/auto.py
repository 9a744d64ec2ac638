"""The method ``auto``, a sequence of steps: a fast plan first, then the master program until proven or out of time.

Most steps begin with the best plan so far. The answer is the best plan and the best bound of all steps. Among plans of
the same cost, one with slack is preferred (``provision.solving.slack``).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from provision.formulations.assignment import cpsat
from provision.formulations.master.solve import carries_rates
from provision.formulations.pricing.rates import MOST_PRICED
from provision.heuristics.core import greedy, lns
from provision.heuristics.gpulets import ideal
from provision.models.base.errors import InputError
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Progress, Search, Termination
from provision.solving import master, values
from provision.solving.even import even_replicas
from provision.solving.schedule import SCHEDULE
from provision.solving.session.mended import mended
from provision.solving.slack import what_fits, with_slack
from provision.solving.steps import Step, isolated, narrower, of_others, similar, where_able
from provision.solving.surviving import surviving

DISTINCT = 200
"""With more pairs of models and SLO, a plan of classes of workloads comes before the master program, whose first plan
takes long.
"""
WALKED, VAST = 2000, 20_000
"""With more pairs than WALKED, or more distinct workloads than VAST, classes take the place of the master program."""


def run(instance: Instance, search: Search) -> Outcome:
    """Run the steps; the outcome has the best plan and the best bound of all steps."""
    slack = _wants_slack(instance, search)
    if instance.places is not None:
        from provision.solving.placing.placed import placed  # CP-SAT loads slowly

        return placed(instance, search, run)
    if instance.policy.survive:
        return surviving(instance, search, run)
    if instance.policy.even_replicas:
        return even_replicas(instance, search, run)
    progress, found = Progress(instance, search), Outcome("unknown", "time_limit")
    built, reason, first_s, least = 0.0, "", 0.0, _least(instance)
    progress.prove(least)
    for step, seconds in _steps(instance, search):
        left_s = progress.search.left_s - progress.writing_s
        if left_s <= 0:
            return progress.outcome("time_limit", reason, built)
        onward = _onward(progress, least, min(seconds * max(first_s / SCHEDULE.slow_s, 1.0), left_s))
        found = step(instance, onward)
        if found.termination == "completed":
            first_s = first_s or onward.elapsed_s
        built, reason = built + found.build_seconds, found.reason or reason
        if found.status == "infeasible" and progress.plan is None:
            told = what_fits(instance, greedy.METHODS[0], progress.search.apart(SCHEDULE.explain_s))
            return replace(found, reason=found.reason + told)
        if found.plan is not None:
            progress.offer(found.plan)
        progress.prove(found.bound)
        if progress.enough:
            break
    ended: Termination = "proved" if progress.proved else "completed" if progress.enough else found.termination
    if progress.plan is not None and ended in ("proved", "completed") and slack:
        seconds = max(SCHEDULE.slack_s, SCHEDULE.slack_part * progress.search.elapsed_s)
        progress.plan = with_slack(instance, progress.plan, progress.bound, greedy.solve,
                                   progress.search.anew(time_limit_s=min(seconds, progress.search.left_s)))
    return progress.outcome(ended, reason, built)


def _wants_slack(instance: Instance, search: Search) -> bool:
    """Whether to look for a plan with slack.

    A plan of most throughput has no slack. With shared slices there is no search for slack either, because greedy,
    which does it, does not share slices.
    """
    asked = search.parameters.get("slack", "yes")
    if asked not in ("yes", "no"):
        raise InputError(f"slack={asked}: should be yes or no")
    return asked == "yes" and not needs(instance) & {"share_slices", "max_throughput"}


def _steps(instance: Instance, search: Search) -> Iterator[tuple[Step, float]]:
    """Yield the steps, each with the seconds that it may take. If columns of an earlier solve are known, that solve's
    plan is mended first, and the master program goes on from its columns; then come the steps of ``_ladder``.
    """
    if search.kept is not None and search.kept.fits(instance):
        yield _mended, math.inf
        yield master.solve, math.inf
    yield from _ladder(instance, search)


def _mended(instance: Instance, search: Search) -> Outcome:
    """The last plan, mended so that it serves the present demand."""
    plan = search.kept.plan_for(instance) if search.kept is not None else None
    found = None if plan is None else mended(instance, plan, search)
    return Outcome("unknown" if found is None else "feasible", "completed", found)


def _ladder(instance: Instance, search: Search) -> Iterator[tuple[Step, float]]:
    """Yield the steps, each with the seconds that it may take.

    Greedy comes first, unless the search begins with its plan (parameter ``greedy=no``). It is quick if isolated
    segments are ``mixes`` of replica sets. Otherwise it fills slices, which takes long for many workloads. So quicker
    steps come before: plans without sharing, the bound of similar workloads merged into few, and the plan of similar
    workloads as equal ones. Greedy plans narrower instances too, unless later steps have them ``covered``: ruin and
    recreate, where ``many`` workloads share GPUs under interference, or the master program, where patterns carry rates
    and arrivals are not random. The master program comes last, and after it the program over single GPUs.
    """
    asked = needs(instance)
    if "gpulets" in asked and asked - {"random_turns"} <= ideal.METHODS[0].features:  # its plans are valid for any rule
        yield ideal.METHODS[0].run, SCHEDULE.quick_s
        yield master.solve, SCHEDULE.turns_s
    rated, distinct = carries_rates(instance, search.within()), len(set(instance.workloads))
    slos = len({(one.models, one.slo_ms) for one in instance.workloads})
    many = not rated and distinct > MOST_PRICED and values.applies(instance)
    pooled = many and (slos > WALKED or distinct > VAST)
    covered, mixes = many or (rated and not instance.policy.rule.random_arrivals), asked <= greedy.MIXED
    quick, whole = search.parameters.get("greedy") != "no", where_able(greedy.METHODS[0])
    if quick and not mixes:
        yield of_others(greedy.METHODS[0], isolated), SCHEDULE.isolated_s
    if quick and mixes:
        yield whole, math.inf
    if not pooled and (not many or slos > DISTINCT):
        yield master.merged_bound, math.inf
    if quick and not mixes:
        yield of_others(greedy.METHODS[0], similar), SCHEDULE.similar_s
    if pooled:
        yield _pooled, math.inf
        return
    if quick and not covered:
        yield of_others(greedy.METHODS[0], narrower), math.inf
    if quick and not mixes:  # for most throughput, it searches as long as it may
        yield whole, SCHEDULE.filling_s if instance.objective == THROUGHPUT else math.inf
    if many:
        yield where_able(lns.METHODS[0]), SCHEDULE.walk_s
        if slos > DISTINCT:
            yield values.solve, SCHEDULE.pooled_s
    if master.shares_networks(instance) and instance.objective != THROUGHPUT:
        yield master.first_answers, SCHEDULE.shared_s
    yield master.solve, math.inf
    if instance.objective != THROUGHPUT:
        yield where_able(cpsat.METHODS[0]), math.inf


def _pooled(instance: Instance, search: Search) -> Outcome:
    """The plan and bound of pooled workloads; greedy's answer if there is no such plan."""
    found = values.solve(instance, search)
    return found if found.plan is not None else where_able(greedy.METHODS[0])(instance, search)


def _least(instance: Instance) -> float | None:
    """The price of one GPU of the cheapest type, which every plan needs; None if no workload has requests, or if the
    objective is the most throughput.
    """
    served = any(instance.planned_rps(one) > 0 for one in instance.workloads) and instance.objective != THROUGHPUT
    return min(map(objective_of(instance).weight, instance.fleet)) if served else None


def _onward(progress: Progress, least: float | None, seconds: float) -> Search:
    """The Search of a step: it begins with the best plan and bound so far, and reports only improvements. If the bound
    is only the price of one GPU (``least``), the step begins without a bound.
    """
    instance, bound = progress.instance, None if progress.bound == least else progress.bound

    def report(news: Incumbent) -> None:
        better = objective_of(instance).better(news.objective, progress.value)
        if news.plan is not None and better:
            progress.plan = news.plan
        if objective_of(instance).tighter(news.bound, progress.bound):
            progress.bound = news.bound
        value, plan = (news.objective, news.plan) if better else (progress.value, progress.plan)
        progress.search.report(Incumbent(value, progress.bound, plan))

    return progress.search.anew(time_limit_s=seconds, start=progress.plan, bound=bound, report=report)


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

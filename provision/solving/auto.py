"""The method ``auto``, a sequence of steps: a fast plan first, then the master program until proven or out of time.

Most steps begin with the best plan so far. The answer is the best plan and the best bound of all steps. Some steps run
a method on narrower instances, with fewer GPU types for example, whose plans are valid for the instance, too. Among
plans of the same cost, one with slack is preferred (``provision.solving.slack``).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from provision.formulations.assignment import cpsat
from provision.formulations.pricing.rates import MOST_PRICED
from provision.heuristics.core import greedy
from provision.heuristics.gpulets import ideal
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Progress, Search, Termination
from provision.solving import master, values
from provision.solving.policies import even_replicas, surviving
from provision.solving.schedule import SCHEDULE
from provision.solving.slack import wants_slack, what_fits, with_slack
from provision.solving.steps import GREEDY, Step, narrower, of_others, one_gpu, where_able


def run(instance: Instance, search: Search) -> Outcome:
    """Run the steps; the outcome has the best plan and the best bound of all steps. Instances with ``places``,
    ``survive`` or ``even_replicas`` are planned by way of other instances, for each of which ``run`` is called again.
    """
    slack = wants_slack(instance, search)  # refuses a wrong parameter before anything else
    if instance.places is not None:
        from provision.solving.placed import placed  # CP-SAT loads slowly

        return placed(instance, search, run)
    if instance.policy.survive:
        return surviving(instance, search, run)
    if instance.policy.even_replicas:
        return even_replicas(instance, search, run)
    progress, found = Progress(instance, search), Outcome("unknown", "time_limit")
    built, reason = 0.0, ""
    progress.prove(one_gpu(instance) or None)
    for step, seconds in _steps(instance, search):
        left_s = progress.search.left_s - progress.writing_s
        if left_s <= 0:
            return progress.outcome("time_limit", reason, built)
        found = step(instance, _onward(progress, min(seconds, left_s)))
        built, reason = built + found.build_seconds, found.reason or reason
        if found.status == "infeasible" and progress.plan is None:
            told = what_fits(instance, progress.search.apart(SCHEDULE.explain_s))
            return replace(found, reason=found.reason + told)
        progress.offer(found.plan)
        progress.prove(found.bound)
        if progress.enough:
            break
    ended: Termination = "completed" if progress.enough else found.termination  # enough: within the gap asked for
    ended = "proved" if progress.proved else ended
    if progress.plan is not None and ended in ("proved", "completed") and slack:
        seconds = max(SCHEDULE.slack_s, SCHEDULE.slack_part * progress.search.elapsed_s) - progress.writing_s
        progress.plan = with_slack(instance, progress.plan, progress.bound, progress.search.apart(seconds))
    return progress.outcome(ended, reason, built)


def _steps(instance: Instance, search: Search) -> Iterator[tuple[Step, float]]:
    """Yield the steps, each with the seconds that it may take."""
    asked, throughput, begun = needs(instance), instance.objective == THROUGHPUT, search.start is not None
    fills = not asked <= greedy.MIXED  # greedy fills slices where it cannot mix replica sets
    if "gpulets" in asked and asked - {"random_turns"} <= ideal.METHODS[0].features:
        yield ideal.METHODS[0].run, SCHEDULE.quick_s
        yield master.solve, SCHEDULE.turns_s
    # A plan within a second, and a bound within two. Where greedy fills slices, instances without sharing are planned
    # sooner than the whole; otherwise it mixes segments by a linear program, which is quick.
    if not fills:
        yield GREEDY, math.inf
    elif not begun:
        yield of_others(_isolated), SCHEDULE.isolated_s
    if not values.applies(instance):
        yield master.merged_bound, math.inf
        # Better plans: greedy on narrower instances and on the whole.
        if len(instance.workloads) > MOST_PRICED and not begun:
            yield of_others(narrower), math.inf
        if fills and not begun:
            yield GREEDY, SCHEDULE.filling_s if throughput else math.inf  # for most throughput, it would use all time
        if master.shares_networks(instance) and not throughput:
            yield master.first_answers, SCHEDULE.shared_s
    # Plans and bounds of all kinds, until proven or out of time. Where `values` applies, `master` calls it.
    yield master.solve, math.inf
    if not throughput:
        yield where_able(cpsat.METHODS[0]), math.inf


def _isolated(instance: Instance) -> Iterator[Instance]:
    """Yield the ``narrower`` instances in which no replicas share slices, and the one without any sharing."""
    yield from (one for one in narrower(instance) if needs(one) <= ISOLATED | {"max_replicas", "max_throughput"})
    yield greedy.without_sharing(instance)


def _onward(progress: Progress, seconds: float) -> Search:
    """The Search of a step: it begins with the best plan and bound so far, and reports only improvements."""
    def report(news: Incumbent) -> None:
        progress.offer(news.plan)
        progress.prove(news.bound)
        if news.plan is None and objective_of(progress.instance).better(news.objective, progress.value):
            progress.search.report(Incumbent(news.objective, progress.bound, None))

    return progress.search.anew(time_limit_s=seconds, start=progress.plan, bound=progress.bound, report=report)


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
        parameters={"slack": "yes"},
    ),
)

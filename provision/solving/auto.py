"""The method ``auto``, a sequence of steps: a fast plan first, then the master program until proven or out of time.

Every step begins with the best plan so far. The answer is the best plan and the best bound of all steps. Among plans of
the same cost, one with slack is preferred (``provision.solving.slack``).
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from provision.formulations.assignment import cpsat
from provision.formulations.bounds.replica_set_bound import replica_set_bound
from provision.formulations.isolated import partition_counts
from provision.formulations.master.solve import carries_rates
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments, cap_rps
from provision.heuristics.core import greedy
from provision.heuristics.gpulets import ideal
from provision.models.base.errors import InputError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Progress, Search, Termination
from provision.solving import master
from provision.solving.even import MOST_PARTS, even_replicas, merged, split
from provision.solving.large import pooled
from provision.solving.methods import methods
from provision.solving.parts import parts_of
from provision.solving.rehearsal import rehearse_once
from provision.solving.schedule import SCHEDULE
from provision.solving.session.mended import mended
from provision.solving.slack import with_slack
from provision.solving.steps import Step, on_parts, walks, where_able, with_parts
from provision.solving.surviving import surviving
from provision.verification.verify import verify

FEW_ITERATIONS = 10
"""The iterations of ``lns`` in a rehearsal."""
RATED_WEIGHT = 8
"""Narrower instances (with fewer GPU types, for example) share the time. Those that are planned by patterns that carry
rates get this many times as much as others, since they include other narrower instances.
"""
SHARED = {"interference", "other_sharing", "gpulets"}
"""The features of instances with performance data of replicas that share GPUs."""
DISTINCT = 200
"""Quick methods and partition-counts run before the master program only for up to this number of distinct workloads."""
WALKED = 2000
"""Ruin and recreate, and the master program on narrower instances, run only for up to this number of distinct
workloads. With more, they improve plans too slowly.
"""
VAST = 20_000
"""With more distinct workloads, or more than DISTINCT SLOs, workloads under interference are pooled. With more than
VAST, or more than WALKED SLOs, no other step follows.
"""


def run(instance: Instance, search: Search) -> Outcome:
    """Run the steps; the outcome has the best plan and the best bound of all steps."""
    if instance.policy.survive:
        return surviving(instance, search, run)
    if instance.policy.even_replicas:
        return even_replicas(instance, search, run)
    progress, found = Progress(instance, search), Outcome("unknown", "time_limit")
    built, reason, first_s = 0.0, "", 0.0
    for step, seconds in _steps(instance, search):
        left_s = progress.search.left_s - progress.writing_s
        # If there is a plan and a bound already, a step is useful only if it has at least as much time as the first
        # step took.
        if left_s <= (0 if progress.bound is None else first_s):
            progress.prove(_least(instance) if progress.bound is None else None)
            return progress.outcome("time_limit", reason, built)
        _rehearse_step(step, instance)
        onward = _onward(progress, min(seconds * max(first_s / SCHEDULE.slow_s, 1.0), left_s))
        found = step(instance, onward)
        if found.termination == "completed":
            first_s = first_s or onward.elapsed_s
        built, reason = built + found.build_seconds, found.reason or reason
        if found.status == "infeasible" and progress.plan is None:
            return found
        if found.plan is not None:
            progress.offer(found.plan)
        progress.prove(found.bound)
        if progress.enough:
            break
    ended: Termination = "proved" if progress.proved else "completed" if progress.enough else found.termination
    if progress.plan is not None and ended in ("proved", "completed") and _wants_slack(instance, search):
        progress.plan = with_slack(instance, progress.plan, progress.bound, greedy.solve, progress.search)
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
    """Yield the steps, each with the seconds that it may take. If columns of an earlier solve are known, the master
    program comes first; then come the steps of ``_ladder``.

    Greedy is left out if the search begins with its plan (the parameter ``greedy=no`` of a Detour).
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

    If patterns carry rates, the master program comes early: it covers every plan of narrower instances, and it soon has
    a plan. Only under random arrivals greedy plans narrower instances as well, since the master program's first plans
    are dearer there.
    """
    asked = needs(instance)
    if "gpulets" in asked and asked - {"random_turns"} <= ideal.METHODS[0].features:  # its plans are valid for any rule
        yield ideal.METHODS[0].run, SCHEDULE.quick_s
        yield master.solve, SCHEDULE.turns_s
    rated, distinct = carries_rates(instance, search.within()), len(set(instance.workloads))
    slos = len({(one.models, one.slo_ms) for one in instance.workloads})
    many = (slos > DISTINCT or distinct > VAST) and pooled.applies(instance)
    if many and (slos > WALKED or distinct > VAST):
        yield _pooled, math.inf
        return
    searched = instance.objective == THROUGHPUT and bool(asked & SHARED)  # greedy searches as long as it may
    if search.parameters.get("greedy") != "no":
        covered = many or (rated and not instance.policy.rule.random_arrivals)
        first = where_able(greedy.METHODS[0]) if covered else with_parts(greedy.METHODS[0])
        yield first, SCHEDULE.filling_s if searched else math.inf
    yield _quick, SCHEDULE.quick_s
    if instance.objective == THROUGHPUT:
        if not searched:
            isolated = asked <= partition_counts.METHODS[0].features
            yield with_parts(partition_counts.METHODS[0]), math.inf if isolated else SCHEDULE.counts_s
            if isolated:
                return
            yield _served, SCHEDULE.served_s
        yield master.solve, math.inf
        return
    if rated:
        yield _one_gpu, math.inf
        yield master.solve, math.inf
    elif instance.policy.share_slices:
        yield _unshared, SCHEDULE.unshared_s
    if many:
        yield pooled.solve, SCHEDULE.pooled_s
    if asked & SHARED:
        yield _few_replicas, SCHEDULE.few_s
        yield _one_gpu, math.inf
        if distinct <= WALKED:
            yield walks, SCHEDULE.walk_s
    if asked <= partition_counts.METHODS[0].features:
        yield _replica_set, math.inf
        if distinct <= DISTINCT:
            yield partition_counts.solve, SCHEDULE.counts_s
    if master.shares_networks(instance):
        yield master.first_answers, SCHEDULE.shared_s
    if distinct <= WALKED and next(parts_of(instance), None) is not None and not rated:
        yield on_parts(master.METHODS[0], SCHEDULE.parts_s, _weight), SCHEDULE.parts_s
    if not rated:
        yield master.solve, math.inf
    yield where_able(cpsat.METHODS[0]), math.inf


def _pooled(instance: Instance, search: Search) -> Outcome:
    """The plan and bound of pooled workloads; greedy's answer if there is no such plan."""
    found = pooled.solve(instance, search)
    return found if found.plan is not None else where_able(greedy.METHODS[0])(instance, search)


def _weight(part: Instance, search: Search) -> int:
    """The weight of a narrower instance when the time of the master program is divided among several."""
    return RATED_WEIGHT if carries_rates(part, search.within()) else 1


def _quick(instance: Instance, search: Search) -> Outcome:
    """The best plan of all quick methods, including those of other packages."""
    progress = Progress(instance, search)
    for method in methods().values() if len(set(instance.workloads)) <= DISTINCT else ():
        if method.quick and search.left_s > 0 and not progress.proved:
            found = where_able(method)(instance, search.apart(**method.parameters))
            if found.plan is not None and verify(instance, found.plan).ok:
                progress.offer(found.plan)
    return progress.outcome("completed")


def _served(instance: Instance, search: Search) -> Outcome:
    """A quick plan that carries all rates on few GPUs, as the first plan for objective max_throughput. If a plan is
    known already, nothing is done.
    """
    if search.start is not None:
        return Outcome("unknown", "completed")
    fewest, reason = instance.replace(objective="min_gpus"), ""
    for method in (greedy.METHODS[0], ideal.METHODS[0]):
        found = where_able(method)(fewest, search.apart(**method.parameters))
        plan = None if found.plan is None else instance.adopted(found.plan)
        if plan is not None and verify(instance, plan).ok:
            return Outcome("feasible", "completed", plan)
        reason = reason or found.reason
    return Outcome("unknown", "completed", reason=reason)


def _unshared(instance: Instance, search: Search) -> Outcome:
    """The best plan without shared slices, found by all steps of ``auto``."""
    found = run(instance.with_policy(share_slices=False), search.apart(slack="no", greedy="yes"))
    return _adopted(instance, None if found.plan is None else instance.adopted(found.plan))


def _few_replicas(instance: Instance, search: Search) -> Outcome:
    """A plan in which every workload has the fewest replicas of equal rates that limits and slices allow.

    The idea: if the numbers of replicas are fixed, every replica can be planned like a workload of its own, and the
    program of such an instance is small.
    """
    numbers = _numbers(instance)
    if not numbers or ("interference" in needs(instance) and max(numbers) == 1):  # the master begins with such plans
        return Outcome("unknown", "completed")
    found = master.solve(split(instance, numbers), search.apart())
    return _adopted(instance, None if found.plan is None else merged(instance, found.plan))


def _adopted(instance: Instance, plan: Plan | None) -> Outcome:
    """The Outcome with a plan that was made for another instance, if it is valid here."""
    if plan is None or not verify(instance, plan).ok:
        return Outcome("unknown", "completed")
    return Outcome("feasible", "completed", plan)


def _numbers(instance: Instance) -> tuple[int, ...]:
    """The least number of replicas with equal rates, by workload; empty if limits or slices allow none for some
    workload.
    """
    most_rps = best_segments(instance).throughput_rps.max(axis=1, initial=0.0)
    found = []
    for one, most in zip(instance.workloads, most_rps.tolist(), strict=True):
        needed = math.ceil(instance.planned_rps(one) / most * (1 - TOLERANCE)) if most > 0 else 0
        number = max(1, one.min_replicas, needed, math.ceil(1 / one.max_share_per_gpu * (1 - TOLERANCE)))
        if most <= 0 or number > (one.max_replicas or number):
            return ()
        found.append(number)
    return tuple(found) if sum(found) <= MOST_PARTS else ()


def _one_gpu(instance: Instance, search: Search) -> Outcome:
    """The bound that a plan needs at least one GPU, if the best plan has one. It proves that a plan with one GPU of the
    cheapest type is optimal.
    """
    alone = search.start is not None and len(search.start.gpus) <= 1
    return Outcome("unknown", "completed", bound=_least(instance) if alone else None)


def _least(instance: Instance) -> float | None:
    """The bound that a plan needs at least one GPU, of the cheapest type; None if no workload has requests, and for the
    most throughput.
    """
    served = any(instance.planned_rps(one) > 0 for one in instance.workloads) and instance.objective != THROUGHPUT
    return min(map(objective_of(instance).weight, instance.fleet)) if served else None


def _replica_set(instance: Instance, search: Search) -> Outcome:
    """The replica-set bound. It takes milliseconds and often proves the plan."""
    segments = best_segments(instance)
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    if not useful.any(axis=1).all():
        return Outcome("unknown", "completed")
    bound, _ = replica_set_bound(instance, useful, segments, partitions_of(instance, segments))
    return Outcome("unknown", "completed", bound=bound)


def _onward(progress: Progress, seconds: float) -> Search:
    """The Search of a step: it begins with the best plan so far, and reports only improvements."""
    instance = progress.instance

    def report(news: Incumbent) -> None:
        better = objective_of(instance).better(news.objective, progress.value)
        if news.plan is not None and better:
            progress.plan = news.plan
        if objective_of(instance).tighter(news.bound, progress.bound):
            progress.bound = news.bound
        progress.search.report(Incumbent(news.objective if better else progress.value, progress.bound, progress.plan))

    return progress.search.anew(time_limit_s=seconds, start=progress.plan, bound=progress.bound, report=report)


def _rehearse_step(step: Step, instance: Instance) -> None:
    """Compile the kernels of a step when its turn comes, so that earlier steps do not wait for them."""
    rehearse_once(f"{step.__module__}.{step.__qualname__}", instance, partial(_moment, step))


def _moment(step: Step, few: Instance, seconds: float) -> None:
    """Run a step for at most ``seconds``."""
    search = Search(seconds, parameters={**PARAMETERS, "iterations": FEW_ITERATIONS})
    step(few, search)


def _rehearse(few: Instance, seconds: float) -> None:
    """Compile the kernels of all steps before other instances are planned, so that compiling does not use up their
    time.
    """
    if few.policy.survive or few.policy.even_replicas:
        plain = few.with_policy(survive=None, even_replicas=False)
        for step, _ in _ladder(plain, Search(seconds, parameters=PARAMETERS)):
            _rehearse_step(step, plain)


PARAMETERS = {**partition_counts.METHODS[0].parameters, "slack": "yes"}
METHODS = (
    Method(
        name="auto",
        summary="greedy at once, then the master program until proved, out of time or stopped (Ctrl-C keeps the best)",
        run=run,
        compiled=True,
        exact=True,
        source="this package",
        features=ISOLATED | {"tokens", "max_replicas", "interference", "gpulets", "other_sharing", "share_slices",
                             "random_interference", "random_turns", "random_slices", "survive",
                             "even_replicas", "max_throughput", "full_batches"},
        parameters=PARAMETERS,
        rehearse=_rehearse,
    ),
)

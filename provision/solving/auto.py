"""The ladder: a greedy plan at once, then bounds and exact methods until proved, out of time or stopped.

Every step begins with the best plan so far; the best plan and the best bound of all steps are the answer. Which steps
there are depends on what may share a slice: nobody, whom the policy lets, or whom MPS lets (interference). Of plans of
the same cost the answer is one with slack (``provision.slack``).
"""

from dataclasses import replace
from time import perf_counter

import numpy as np

from provision.formulations.assignment import cpsat as assignment_cpsat
from provision.formulations.master import (
    gpulets_patterns,
    mixed_slices,
    partition_counts,
    patterns,
    patterns_throughput,
)
from provision.formulations.master.cover_bound import cover_bound
from provision.heuristics.core import greedy, lns
from provision.heuristics.gpulets import ideal as gpulets_ideal
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.contents.alone.partitions import partitions_of
from provision.models.contents.alone.segments import best_segments, cap_rps
from provision.models.contents.interference.shared_plans import is_shared
from provision.models.contents.interference.throughput_plans import is_shared_throughput
from provision.models.problem.method import FEATURES, Incumbent, Method, Outcome, needs
from provision.solving.slack import with_slack


def run(instance, control):
    """Best plan and best bound of all steps; Ctrl-C ends the search, not the result."""
    started = perf_counter()
    best = found = Outcome("unknown", "time_limit", plan=control.start)
    for step, share in _ladder(instance):
        left_s = control.time_limit_s - (perf_counter() - started)
        if left_s <= 0:
            return _closed(best, "time_limit", started)
        try:
            found = step(instance, _onward(instance, control, best, left_s * share))
        except KeyboardInterrupt:
            return _closed(best, "stopped", started)
        if found.status == "infeasible" and best.plan is None:
            return found
        best = _merged(instance, best, found)
        _tell(control, instance, best)
        if _proved(instance, best) or found.termination == "stopped":
            break
    termination = "proved" if _proved(instance, best) else found.termination
    if best.plan and termination in ("proved", "completed") and _wants_slack(instance, control):
        best = replace(best, plan=_loosened(instance, best.plan, control, started))
    return _closed(best, termination, started)


def _wants_slack(instance, control):
    """Whether to look for slack, of which a plan of most throughput has none.

    Where slices are shared, greedy, which is quick enough for it, does not share them.
    """
    asked = control.parameters.get("slack", "yes")
    if asked not in ("yes", "no"):
        raise InputError(f"slack={asked}: should be yes or no")
    return asked == "yes" and not needs(instance) & {"share_slices", "max_throughput"}


def _loosened(instance, plan, control, started):
    try:
        return with_slack(instance, plan, greedy.solve, control, started)
    except KeyboardInterrupt:
        return plan


def _ladder(instance):
    """Steps, each with the part that it may take of the time left."""
    asked = needs(instance)
    if "gpulets" in asked:
        gpulets_patterns.METHODS[0].check(instance)
        return ((gpulets_ideal.solve, 0.5), (gpulets_patterns.solve, 1.0))
    if "interference" in asked:
        shared = ((lns.solve, 0.05), (patterns.solve, 1.0)) if is_shared(instance) else ()
        most = ((patterns_throughput.solve, 1.0),) if is_shared_throughput(instance) else ()
        return ((greedy.solve, 0.5 if most else 1.0), *shared, *most)
    if "share_slices" in asked:
        mixed = ((mixed_slices.solve, 1.0),) if asked <= mixed_slices.METHODS[0].features else ()
        return ((greedy.solve, 1.0), *mixed)
    if "max_throughput" in asked:
        return ((greedy.solve, 1.0), (partition_counts.solve, 1.0))
    last = ((_assign, 1.0),) if "max_share_per_gpu" in asked else ()
    return ((greedy.solve, 1.0), (_cover, 1.0), (partition_counts.solve, 0.5 if last else 1.0), *last)


def _assign(instance, control):
    """The explicit model, where the instance is small enough: it sees which segments share a GPU."""
    method = assignment_cpsat.METHODS[0]
    try:
        method.check(instance)
    except UnsupportedError as error:
        return Outcome("unknown", "completed", reason=str(error))
    return method.run(instance, control)


def _cover(instance, control):
    """The cover bound: milliseconds, and often all the proof that is needed."""
    segments = best_segments(instance)
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    bound, _ = cover_bound(instance, useful, segments, partitions_of(instance, segments))
    return Outcome("unknown", "completed", bound=bound)


def _onward(instance, control, best, seconds):
    """Control of a step that begins with the best plan so far and tells only what improves on it."""
    value = instance.value(best.plan) if best.plan else None

    def report(news):
        better = instance.better(news.objective, value)
        control.report(news if better else replace(news, objective=value))

    return replace(control, time_limit_s=seconds, start=best.plan or control.start, report=report)


def _merged(instance, one, other):
    """The better plan and the better bound of two outcomes."""
    plans = [outcome.plan for outcome in (one, other) if outcome.plan is not None]
    plan = min(plans, key=lambda plan: instance.loss(instance.value(plan)), default=None)
    bound = other.bound if instance.tighter(other.bound, one.bound) else one.bound
    reason = "" if plan else other.reason
    return replace(one, plan=plan, bound=bound, reason=reason,
                   build_seconds=one.build_seconds + other.build_seconds)


def _proved(instance, outcome):
    return outcome.plan is not None and instance.proved(instance.value(outcome.plan), outcome.bound)


def _closed(outcome, termination, started):
    """The final outcome, its times adding up to those since the start."""
    status = "optimal" if termination == "proved" else "feasible" if outcome.plan else "unknown"
    spent = perf_counter() - started - outcome.build_seconds
    return replace(outcome, status=status, termination=termination, solve_seconds=spent)


def _tell(control, instance, outcome):
    value = instance.value(outcome.plan) if outcome.plan else None
    control.report(Incumbent(value, outcome.bound))


METHODS = (
    Method(
        name="auto",
        summary="greedy at once, then exact until proved, out of time or stopped (Ctrl-C keeps the best)",
        run=run,
        compiled=True,
        exact=True,
        source="this package",
        features=frozenset(FEATURES) - {"max_replicas"},
        parameters={**partition_counts.METHODS[0].parameters, **mixed_slices.METHODS[0].parameters, "slack": "yes"},
    ),
)

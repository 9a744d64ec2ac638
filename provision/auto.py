"""The ladder: a greedy plan at once, a bound, then the exact method until proved, out of time or stopped."""

from dataclasses import replace
from time import perf_counter

import numpy as np

from provision.formulations import partition_counts
from provision.formulations.cover_bound import cover_bound
from provision.heuristics import greedy
from provision.models.method import FEATURES, Incumbent, Method
from provision.models.partitions import partitions_of
from provision.models.segments import best_segments, cap_rps

ROUNDING = 1e-9
"""Relative difference at which an objective counts as equal to its bound."""


def run(instance, control):
    """Best plan and best bound of all steps; Ctrl-C ends the search, not the result."""
    started = perf_counter()
    first = greedy.solve(instance, control)
    if first.status == "infeasible":
        return first
    best = replace(first, bound=_bound(instance))
    _tell(control, instance, best)
    if _proved(instance, best):
        return _closed(best, "proved", started)
    left = replace(control, time_limit_s=control.time_limit_s - (perf_counter() - started), report=_quiet)
    if left.time_limit_s <= 0:
        return _closed(best, "time_limit", started)
    try:
        exact = partition_counts.solve(instance, left)
    except KeyboardInterrupt:
        return _closed(best, "stopped", started)
    if exact.status == "infeasible":
        return replace(exact, solve_seconds=perf_counter() - started - exact.build_seconds)
    best = _merged(instance, best, exact)
    _tell(control, instance, best)
    return _closed(best, "proved" if _proved(instance, best) else exact.termination, started)


def _bound(instance):
    """The cover bound."""
    segments = best_segments(instance)
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    return cover_bound(instance, useful, segments, partitions_of(instance, segments))[0]


def _merged(instance, one, other):
    """The better plan and the better bound of two outcomes."""
    plans = [outcome.plan for outcome in (one, other) if outcome.plan is not None]
    bounds = [outcome.bound for outcome in (one, other) if outcome.bound is not None]
    plan = min(plans, key=instance.value, default=None)
    reason = "" if plan else other.reason
    return replace(one, plan=plan, bound=max(bounds, default=None), reason=reason,
                   build_seconds=one.build_seconds + other.build_seconds)


def _proved(instance, outcome):
    if outcome.plan is None or outcome.bound is None:
        return False
    return instance.value(outcome.plan) <= outcome.bound * (1 + ROUNDING)


def _closed(outcome, termination, started):
    """The final outcome, its times adding up to those since the start."""
    status = "optimal" if termination == "proved" else "feasible" if outcome.plan else "unknown"
    spent = perf_counter() - started - outcome.build_seconds
    return replace(outcome, status=status, termination=termination, solve_seconds=spent)


def _tell(control, instance, outcome):
    value = instance.value(outcome.plan) if outcome.plan else None
    control.report(Incumbent(value, outcome.bound))


def _quiet(incumbent):
    """The exact step's own bound is no news."""


METHODS = (
    Method(
        name="auto",
        summary="greedy at once, then exact until proved, out of time or stopped (Ctrl-C keeps the best)",
        run=run,
        exact=True,
        source="this package",
        features=frozenset(FEATURES),
        parameters=dict(partition_counts.METHODS[0].parameters),
    ),
)

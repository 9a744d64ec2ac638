"""Greedy for throughput under interference: a packing on few GPUs, spread over the whole fleet by moves and swaps.

The first packing is that of `shared_greedy`. A replica is moved to another GPU, or changes places with one there, as
long as that makes the throughput of both GPUs grow, each at the best operating points that a short search finds.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

from provision.formulations.pricing.mps.shared_plans import Pattern, plan_shared
from provision.formulations.pricing.mps.throughput_plans import ThroughputProblem, throughput_problem
from provision.heuristics.core.schedule import GreedySchedule
from provision.heuristics.core.shared_greedy import packed
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search

SCHEDULE = GreedySchedule()
CLEARLY = 1e-9
"""The least relative growth of throughput for which an exchange is made."""


Pair = tuple[Pattern, Pattern]


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance for throughput on shared GPUs; see the module's text."""
    def search(problem: ThroughputProblem) -> tuple[list[Pattern], dict[str, Any]]:
        patterns = packed(problem, control.start)
        if problem.short(patterns):
            return patterns, {"status": "unknown", "termination": "completed"}
        patterns = _spread(problem, patterns, control)
        for pattern in patterns:
            if control.left_s:
                problem.found(pattern, SCHEDULE.kept_nodes)
        return patterns, {"status": "feasible", "termination": "completed"}

    return plan_shared(instance, control, "greedy", search, throughput_problem)


def _spread(problem: ThroughputProblem, patterns: Sequence[Pattern], control: Search) -> list[Pattern]:
    """Patterns improved by moves and swaps until none helps or time is up."""
    used = problem.used(patterns)
    empty: list[Pattern] = [(pool, ()) for pool, one in enumerate(problem.fleet.pools)
                            for _ in range((one.count or 0) - used[pool])]
    patterns = [*empty, *patterns]
    improving = True
    while improving:
        improving = False
        for one, other in combinations(range(len(patterns)), 2):
            if not control.left_s:
                return _filled(patterns)
            better = _better(problem, patterns[one], patterns[other])
            if better:
                patterns[one], patterns[other] = better
                improving = True
    return _filled(patterns)


def _better(problem: ThroughputProblem, one: Pattern, other: Pattern) -> Pair | None:
    """The best two patterns after a move or swap between two, None when that is not better."""
    best: Pair | None = None
    most = max(_value(problem, (one, other)), 0) * (1 + CLEARLY)
    for pair in _exchanged(one, other):
        if _bound(problem, pair) > most and (value := _value(problem, pair)) > most:
            best, most = pair, value
    return best


def _exchanged(one: Pattern, other: Pattern) -> Iterator[Pair]:
    """Two patterns after each move of a replica and each swap between them."""
    for first, second in product((*dict.fromkeys(one[1]), None), (*dict.fromkeys(other[1]), None)):
        if first != second:
            yield _with(one, first, second), _with(other, second, first)


def _with(pattern: Pattern, gone: int | None, come: int | None) -> Pattern:
    """A pattern without one class and with another, None for none."""
    pool, members = pattern
    left = list(members)
    if gone is not None:
        left.remove(gone)
    return pool, tuple(sorted(left if come is None else [*left, come]))


def _value(problem: ThroughputProblem, patterns: Iterable[Pattern]) -> float:
    """Requests/s of patterns at the operating points of a short search; empty ones carry none."""
    return problem.value(_filled(patterns), SCHEDULE.trial_nodes)


def _bound(problem: ThroughputProblem, patterns: Iterable[Pattern]) -> float:
    """A quick upper bound on the requests/s of patterns."""
    return sum(problem.found(pattern, 1).bound for pattern in _filled(patterns))


def _filled(patterns: Iterable[Pattern]) -> list[Pattern]:
    return [pattern for pattern in patterns if pattern[1]]

"""Greedy for throughput under interference: a packing on few GPUs, spread over the whole fleet by moves and swaps.

The first packing is that of `shared_greedy`. A replica is moved to another GPU, or changes places with one there, as
long as that makes the throughput of both GPUs grow, each at the best operating points that a short search finds.
"""

from itertools import combinations, product
from time import perf_counter

from provision.heuristics.core.shared_greedy import packed
from provision.models.contents.interference.shared_plans import plan_shared
from provision.models.contents.interference.throughput_plans import throughput_problem

BOXES, MORE_BOXES = 10, 1000
"""Boxes to search for the operating points of a set that is tried, and of one that is kept."""
CLEARLY = 1e-9
"""Relative growth that counts."""


def solve(instance, control):
    """Plan an instance for throughput on shared GPUs; see the module's text."""
    def search(problem, started):
        patterns = packed(problem, control.start)
        if problem.short(patterns):
            return patterns, {"status": "unknown", "termination": "completed"}
        until = started + control.time_limit_s
        patterns = _spread(problem, patterns, until)
        for pattern in patterns:
            if perf_counter() < until:
                problem.found(pattern, MORE_BOXES)
        return patterns, {"status": "feasible", "termination": "completed"}

    return plan_shared(instance, "greedy", search, throughput_problem)


def _spread(problem, patterns, until):
    """Patterns that no move or swap makes better, or those at hand when time is up."""
    used = problem.used(patterns)
    empty = [(stock, ()) for stock, one in enumerate(problem.fleet.stocks) for _ in range(one.count - used[stock])]
    patterns = empty + patterns
    improving = True
    while improving:
        improving = False
        for one, other in combinations(range(len(patterns)), 2):
            if perf_counter() > until:
                return _filled(patterns)
            better = _better(problem, patterns[one], patterns[other])
            if better:
                patterns[one], patterns[other] = better
                improving = True
    return _filled(patterns)


def _better(problem, one, other):
    """The best two patterns after a move or swap between two, None when that is not better."""
    best, most = None, max(_value(problem, (one, other)), 0) * (1 + CLEARLY)
    for pair in _exchanged(one, other):
        if _bound(problem, pair) > most and (value := _value(problem, pair)) > most:
            best, most = pair, value
    return best


def _exchanged(one, other):
    """Two patterns after each move of a replica and each swap between them."""
    for first, second in product((*dict.fromkeys(one[1]), None), (*dict.fromkeys(other[1]), None)):
        if first != second:
            yield _with(one, first, second), _with(other, second, first)


def _with(pattern, gone, come):
    """A pattern without one class and with another, None for none."""
    stock, members = pattern
    left = list(members)
    if gone is not None:
        left.remove(gone)
    return stock, tuple(sorted(left if come is None else [*left, come]))


def _value(problem, patterns):
    """Requests/s of patterns at the operating points of a short search; empty ones carry none."""
    return problem.value(_filled(patterns), BOXES)


def _bound(problem, patterns):
    """Most that patterns can be worth, at a glance."""
    return sum(problem.found(pattern, 1).bound for pattern in _filled(patterns))


def _filled(patterns):
    return [pattern for pattern in patterns if pattern[1]]

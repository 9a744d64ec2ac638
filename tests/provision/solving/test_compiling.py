"""Compiling kernels does not use up the time that a search was given."""

from provision.models.base.clock import COMPILING, Stopwatch, started_s
from provision.models.problem.search import Search


def test_no_search_counts_what_is_compiled_meanwhile(monkeypatch):
    """Not the one in whose step it happens, and none around it; what comes after counts again."""
    clock = [0.0]
    monkeypatch.setattr("provision.models.base.clock.perf_counter", lambda: clock[0])
    search, watch = Search(3.0), Stopwatch(started_s())
    COMPILING.begin()
    clock[0] += 50
    COMPILING.end()
    assert search.left_s == 3 and watch.elapsed_s == 0
    clock[0] += 1
    assert search.left_s == 2 and watch.elapsed_s == 1

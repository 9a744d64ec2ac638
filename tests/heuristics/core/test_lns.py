"""Ruin and recreate: plans verify, never worse than where it began, the same seed the same answer."""

import pytest
from testbeds import random_testbed

from provision import InputError, read, solve, verify
from provision.heuristics.core import lns, walk
from provision.instances.read import generate
from provision.models.base.clock import present_stop
from provision.models.problem.search import Search


@pytest.mark.parametrize("seed", range(8))
def test_plans_verify_and_are_no_worse_than_greedy(seed):
    instance = random_testbed(5 + 2 * seed, seed)
    result, first = solve(instance, "lns", iterations=200), solve(instance, "greedy")
    assert result.verified and first.verified
    assert result.report.gpus <= first.report.gpus <= solve(instance, "igniter").report.gpus


def test_same_seed_same_answer():
    instance = generate(60, 5)
    first, second = (solve(instance, "lns", seed=7, iterations=500).plan for _ in range(2))
    assert first == second


def test_begins_with_a_given_plan():
    instance = generate(40, 6)
    start = solve(instance, "lns", iterations=2000).plan
    outcome = lns.solve(instance, Search(time_limit_s=0.01, start=start))
    assert len(outcome.plan.gpus) <= len(start.gpus) and verify(instance, outcome.plan).ok


def test_tells_of_better_plans():
    told = []
    result = solve(generate(120, 0), "lns", iterations=3000, report=told.append)
    values = [news.objective for news in told]
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(result.objective)


def test_a_stop_returns_the_best_plan(monkeypatch):
    improve = walk.improve

    def stopped(*given):
        present_stop().ask()
        return improve(*given)

    monkeypatch.setattr(walk, "improve", stopped)
    result = solve(read("igniter-testbed-12"), "lns")
    assert (result.status, result.termination, result.verified) == ("feasible", "stopped", True)


def test_iterations_are_a_whole_number():
    """As the command line passes them, and nonsense."""
    assert solve(generate(12, 1), "lns", iterations="20").verified
    with pytest.raises(InputError, match="iterations: 'x'"):
        solve(generate(12, 1), "lns", iterations="x")

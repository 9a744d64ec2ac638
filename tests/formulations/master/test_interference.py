"""Column generation under interference: plans verify, bounds hold, small optima are those of brute force."""

from dataclasses import replace

import pytest
from igniter_oracle import fewest_gpus
from testbeds import random_testbed

from provision import read, solve, verify
from provision.formulations.master import solve as master
from provision.formulations.values import bound, program
from provision.formulations.values.bound import value_bound
from provision.formulations.values.schedule import SCHEDULE
from provision.instances.read import generate
from provision.models.base.clock import present_stop
from provision.models.problem.search import Progress, Search
from provision.models.problem.workload import FleetEntry


def gpus(outcome):
    return len(outcome.plan.gpus)


@pytest.mark.parametrize("seed", range(4))
def test_small_optima_are_those_of_brute_force(seed):
    instance = random_testbed(2 + seed % 4, seed)
    result = solve(instance, "master")
    best = fewest_gpus(instance)
    assert result.verified and result.report.gpus == best
    assert result.bound <= best * instance.fleet[0].price_per_hour * (1 + 1e-9)


def test_the_testbed_needs_six_gpus():
    result = solve(read("igniter-testbed-12"), "master")
    assert (result.status, result.termination, result.report.gpus) == ("optimal", "proved", 6)
    assert result.bound == pytest.approx(6 * 3.06)


def test_no_method_beats_the_bound():
    instance = random_testbed(14, 1)
    proof = solve(instance, "auto", time_limit_s=10)
    for name in ("igniter", "greedy", "lns"):
        result = solve(instance, name, time_limit_s=0.5)
        assert result.verified and result.objective >= proof.bound * (1 - 1e-9)
        assert result.objective >= proof.objective * (1 - 1e-9) or proof.status != "optimal"


def test_auto_climbs_to_a_proof():
    told = []
    result = solve(random_testbed(15, 1), "auto", report=told.append)
    assert result.status == "optimal" and result.verified
    values = [news.objective for news in told if news.objective is not None]
    assert values == sorted(values, reverse=True)


def test_merged_classes_give_a_plan_and_a_bound(monkeypatch):
    monkeypatch.setattr(bound, "SCHEDULE", replace(SCHEDULE, classes=8))
    instance = generate(20, 2)
    result, other = solve(instance, "master"), solve(instance, "igniter")
    assert result.verified and 0 < result.bound <= min(result.objective, other.objective)


def test_few_workloads_are_proven():
    for seed in range(3):
        instance = random_testbed(8, seed)
        result = solve(instance, "master")
        assert result.verified and result.status == "optimal"


def test_any_number_of_replicas_takes_no_more_gpus_than_one_each():
    single = random_testbed(6, 2)
    free = single.replace(workloads=tuple(one.model_copy(update={"max_replicas": None}) for one in single.workloads))
    fewest = solve(single, "master").objective
    found = solve(free, "master", time_limit_s=8)
    assert found.verified and found.objective <= fewest


def test_a_start_is_never_lost():
    instance = random_testbed(20, 3)
    start = solve(instance, "greedy").plan
    outcome = master.solve(instance, Search(time_limit_s=0.01, start=start))
    assert gpus(outcome) <= len(start.gpus) and verify(instance, outcome.plan).ok


def test_a_stop_returns_the_best_plan(monkeypatch):
    search = program.best_patterns

    def stopped(*given):
        present_stop().ask()
        return search(*given)

    monkeypatch.setattr(program, "best_patterns", stopped)
    result = solve(random_testbed(12, 4), "auto")
    assert result.verified and (result.termination == "stopped" or result.status == "optimal")


def test_a_workload_too_large_for_a_gpu_is_split():
    base = read("igniter-motivation")
    large = base.workloads[0].model_copy(update={"rate_rps": 14000.0, "max_replicas": None})
    for name, settings in (("lns", {"iterations": 20}), ("greedy", {}), ("auto", {})):
        result = solve(base.replace(workloads=(large,)), name, **settings)
        assert result.verified and result.report.gpus > 1
        assert (result.bound is None) == (name != "auto")


@pytest.mark.parametrize(("name", "status"), [("master", "infeasible"), ("auto", "infeasible")])
def test_a_fleet_that_is_too_small_is_said(name, status):
    testbed = read("igniter-testbed-12").replace(fleet=(FleetEntry(gpu="v100", price_per_hour=3.06, count=5),))
    result = solve(testbed, name)
    assert (result.status, result.plan) == (status, None)
    assert "at least 6 v100 GPUs are needed and the fleet has 5" in result.reason


def test_prices_of_replicas_prove_a_fleet_too_small():
    """Twenty workloads that may be split need more than three V100s."""
    instance = generate(20, 0)
    free = [one.model_copy(update={"max_replicas": None}) for one in instance.workloads]
    few = instance.replace(workloads=free, fleet=[instance.fleet[0].model_copy(update={"count": 3})])
    result = solve(few, time_limit_s=20, replay=False)
    assert (result.status, result.plan, result.bound) == ("infeasible", None, None)
    assert "v100 GPUs are needed and the fleet has 3" in result.reason


def test_prices_of_replicas_bound_many_workloads():
    """Prices of replicas prove a bound within seconds; a plan of 40 GPUs is known."""
    instance = generate(120, 0)
    free = [one.model_copy(update={"max_replicas": None}) for one in instance.workloads]
    instance = instance.replace(workloads=free)
    progress = Progress(instance, Search(60))
    value_bound(instance).prove(progress, 3.0)
    assert 3.06 < progress.bound <= 40 * 3.06 * (1 + 1e-9)

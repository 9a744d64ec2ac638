"""Column generation under interference: plans verify, bounds hold, small optima are those of brute force."""

import numpy as np
import pytest
from igniter_oracle import fewest_gpus

from provision import read, solve, verify
from provision.formulations.master import columns, patterns
from provision.instances.generators.igniter import generate
from provision.models.base.errors import UnsupportedError
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry


def random_instance(workloads, seed):
    """Workloads of the testbed in random order, SLOs and rates varied: some GPUs hold one, others many."""
    draw = np.random.default_rng(seed)
    base = generate(24, seed)
    picked = [base.workloads[at] for at in draw.permutation(24)[:workloads]]
    varied = [
        one.model_copy(update={"slo_ms": one.slo_ms * float(draw.uniform(1, 2)),
                               "rate_rps": one.rate_rps * float(draw.uniform(0.2, 1))})
        for one in picked
    ]
    return base.replace(workloads=tuple(varied))


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compile once before any test is measured by a time limit."""
    solve(random_instance(3, 0), "patterns", time_limit_s=1)


def gpus(outcome):
    return len(outcome.plan.gpus)


@pytest.mark.parametrize("seed", range(7))
def test_small_optima_are_those_of_brute_force(seed):
    instance = random_instance(2 + seed % 4, seed)
    result = solve(instance, "patterns", time_limit_s=20)
    best = fewest_gpus(instance)
    assert result.verified and result.report.gpus == best
    assert result.bound <= best * instance.fleet[0].price_per_hour * (1 + 1e-9)


def test_the_testbed_needs_six_gpus():
    result = solve(read("igniter-testbed-12"), "patterns")
    assert (result.status, result.termination, result.report.gpus) == ("optimal", "proved", 6)
    assert result.bound == pytest.approx(6 * 3.06)


@pytest.mark.parametrize("seed", range(4))
def test_no_method_beats_the_bound(seed):
    instance = random_instance(20, seed)
    proof = solve(instance, "patterns", time_limit_s=10)
    for name in ("igniter", "greedy", "lns"):
        result = solve(instance, name, time_limit_s=0.5)
        assert result.verified and result.objective >= proof.bound * (1 - 1e-9)
        assert result.objective >= proof.objective * (1 - 1e-9) or proof.status != "optimal"


def test_auto_climbs_to_a_proof():
    told = []
    result = solve(random_instance(15, 1), "auto", time_limit_s=20, report=told.append)
    assert result.status == "optimal" and result.verified
    values = [news.objective for news in told if news.objective is not None]
    assert values == sorted(values, reverse=True)


def test_merged_classes_give_a_plan_and_a_bound(monkeypatch):
    monkeypatch.setattr(patterns, "PLAN_CLASSES", 40)
    instance = generate(100, 2)
    result, other = solve(instance, "patterns", time_limit_s=5), solve(instance, "igniter")
    assert result.verified and 0 < result.bound <= min(result.objective, other.objective)


def test_a_start_is_never_lost():
    instance = random_instance(20, 3)
    start = solve(instance, "greedy").plan
    outcome = patterns.solve(instance, Search(time_limit_s=0.01, start=start))
    assert gpus(outcome) <= len(start.gpus) and verify(instance, outcome.plan).ok


def test_ctrl_c_returns_the_best_plan(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(columns, "search", interrupt)
    result = solve(random_instance(10, 4), "patterns")
    assert (result.status, result.termination, result.verified) == ("feasible", "stopped", True)


def test_a_workload_too_large_for_a_gpu_is_split_and_nothing_proven():
    base = read("igniter-motivation")
    large = base.workloads[0].model_copy(update={"rate_rps": 20000.0, "max_replicas": None})
    for name in ("patterns", "lns", "greedy", "auto"):
        result = solve(base.replace(workloads=(large,)), name, time_limit_s=1)
        assert result.verified and result.bound is None and result.report.gpus > 1


def test_bounds_need_workloads_that_may_not_be_split():
    """Proven with max_replicas 1; the same plan without a bound where a workload might have two replicas."""
    base = read("igniter-motivation")
    free = base.replace(workloads=tuple(one.model_copy(update={"max_replicas": None}) for one in base.workloads))
    for name in ("patterns", "assignment-cpsat"):
        proven, open_end = solve(base, name, time_limit_s=5), solve(free, name, time_limit_s=5)
        assert (proven.status, proven.bound) == ("optimal", proven.objective)
        assert (open_end.status, open_end.bound) == ("feasible", None)


@pytest.mark.parametrize(("name", "status"), [("patterns", "infeasible"), ("auto", "infeasible"), ("lns", "unknown")])
def test_a_fleet_that_is_too_small_is_said(name, status):
    testbed = read("igniter-testbed-12").replace(fleet=(FleetEntry(gpu="v100", price_per_hour=3.06, count=5),))
    result = solve(testbed, name, time_limit_s=5)
    assert (result.status, result.plan) == (status, None)
    assert "needs 6 v100 GPUs and the fleet has 5" in result.reason


def test_other_instances_are_refused():
    with pytest.raises(UnsupportedError, match="patterns cannot plan"):
        solve(read("parvagpu-s1"), "patterns")

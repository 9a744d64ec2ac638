"""One GPU type at several prices: owned, reserved, on demand."""

import pytest
import replan_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from replan_oracle import tiny

import provision
from provision.formulations.master.solve import first_bound
from provision.formulations.search.problem import Problem
from provision.models.plans.disturbance import disturbance
from provision.models.problem.objective import objective_of
from provision.replanning.replan import replan
from provision.sweeps.parameters import changed

OWNED, RESERVED, ON_DEMAND = (
    {"gpu": "a100-80gb", "price_per_hour": price, "count": count} for price, count in ((0.5, 4), (2.0, 5), (5.12, None))
)


def bought(fleet, name="parvagpu-s5"):
    return provision.read(name).replace(fleet=[provision.FleetEntry(**entry) for entry in fleet])


@pytest.mark.parametrize("method", ["auto", "greedy", "master"])
def test_the_cheapest_are_used_up_first(method):
    instance = bought([ON_DEMAND, OWNED, RESERVED])
    found = provision.solve(instance, method)
    gpus = found.report.gpus
    assert found.verified and gpus >= 12
    assert found.objective == pytest.approx(4 * 0.5 + 5 * 2 + (gpus - 9) * 5.12) == found.report.cost_per_hour
    if method in ("auto", "master"):
        assert found.status == "optimal" and gpus == 12


def test_a_fleet_that_is_too_small_in_all_is_infeasible():
    few = bought([OWNED | {"count": 2}, RESERVED | {"count": 2}], "parvagpu-s3")
    assert provision.solve(few).status == "infeasible"
    report = provision.verify(few, provision.solve("parvagpu-s3").plan)
    assert [one.kind for one in report.violations] == ["fleet"] and report.violations[0].limit == 4


def test_an_owned_type_beats_a_cheaper_one_to_rent():
    """Four A100s that cost nothing more are used before whole T4s at any price."""
    table = [
        {"version": 1, "name": gpu, "kind": "measured-segments", "gpu": gpu,
         "models": {"m": {"points": [("whole", 8, 1, rps, 20.0)]}}}
        for gpu, rps in (("v100", 200.0), ("t4", 80.0))
    ]
    fleet = [{"gpu": "v100", "price_per_hour": 0.0, "count": 2}, {"gpu": "v100", "price_per_hour": 3.0},
             {"gpu": "t4", "price_per_hour": 0.5}]
    work = [{"name": "w", "model": "m", "slo_ms": 100.0, "rate_rps": 1000.0}]
    instance = provision.Instance(version=1, name="mix", fleet=fleet, performance=table, workloads=work)
    found = provision.solve(instance)
    assert [gpu.gpu for gpu in found.plan.gpus].count("v100") == 2 and found.objective == pytest.approx(8 * 0.5)


@pytest.mark.parametrize("owned", [1, 2])
def test_gpus_that_are_free_of_charge_may_be_enough(owned):
    """No bound counts on a cost above 0 where some GPUs cost nothing; two GPUs carry the traffic."""
    free = [OWNED | {"price_per_hour": 0.0, "count": owned}, RESERVED, ON_DEMAND]
    found = provision.solve(bought(free, "parvagpu-s1"), replay=False)
    assert found.status == "optimal" and found.objective == found.bound == 2.0 * (2 - owned)
    assert first_bound(Problem(bought(free, "parvagpu-s1"))) == 0


def test_replanning_counts_tiers_too():
    instance = bought([OWNED, RESERVED, ON_DEMAND])
    plan = provision.solve(instance).plan
    found = replan(instance, plan)
    assert found.changes == disturbance(plan, plan) and found.objective == pytest.approx(
        objective_of(instance).value(plan)
    )


def test_whichever_gpu_is_given_back_the_dearest_is_saved():
    """Two V100s run, one owned: without the first workload its GPU goes, and what stays is the owned one."""
    table = {"version": 1, "name": "t", "kind": "measured-segments", "gpu": "v100",
             "models": {"m": {"points": [("whole", 8, 1, 200.0, 20.0)]}}}
    fleet = [{"gpu": "v100", "price_per_hour": 0.0, "count": 1}, {"gpu": "v100", "price_per_hour": 3.0}]
    for gone in (0, 1):
        rates = [0.0 if at == gone else 150.0 for at in (0, 1)]
        work = [{"name": name, "model": "m", "slo_ms": 100.0, "rate_rps": rate, "min_replicas": 0}
                for name, rate in zip("ab", rates, strict=True)]
        instance = provision.Instance(version=1, name="two", fleet=fleet, performance=table, workloads=work)
        gpus = [{"gpu": "v100", "mig": False, "slices": [{"profile": "whole", "replicas": [
            {"workload": name, "batch": 8, "rate_rps": 150.0}]}]} for name in "ab"]
        found = replan(instance, provision.Plan(version=1, instance="two", gpus=gpus), 0.01)
        assert found.objective == 0 and found.changes[:3] == (1, 0, 0)
        assert found.status == "optimal" and found.bound <= found.weighted == pytest.approx(0.01)


@given(st.tuples(*[st.integers(5, 110).map(float)] * 4), st.integers(0, 2), st.sampled_from([0.01, 0.2, 1.5]))
@settings(max_examples=8)
def test_replanning_at_two_prices_against_brute_force(rates, owned, cost):
    """Owned A30s are free, others cost 1: so much less than where all cost 1 is the bill of every plan."""
    before, after = tiny(rates[:2]), tiny(rates[2:])
    fleet = [provision.FleetEntry(gpu="a30", price_per_hour=0.5, count=owned), provision.FleetEntry(gpu="a30",
             price_per_hour=1.0)]
    running = provision.solve(before).plan
    best = replan_oracle.cheapest(after, running, cost, lambda number: number - 0.5 * min(owned, number))
    found = replan(after.replace(fleet=fleet), running, cost)
    if best is not None and found.status == "optimal" and len(found.plan.gpus) <= len(running.gpus) + 1:
        assert found.bound <= best + 1e-9 and found.weighted == pytest.approx(best, abs=1e-4)


def test_a_sweep_of_one_price_where_there_are_two_is_refused():
    with pytest.raises(provision.InputError, match="more than once"):
        changed(bought([OWNED, RESERVED]), {"price.a100-80gb": 1.0})


def test_tiers_differ_in_price_and_count_alone():
    with pytest.raises(ValidationError, match="stands twice"):
        bought([OWNED, OWNED])
    with pytest.raises(ValidationError, match="mps"):
        bought([OWNED, RESERVED | {"mps": False}])

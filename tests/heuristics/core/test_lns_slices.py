"""Ruin and recreate over slices: plans hold for all limits and rules, and are no dearer than the greedy plan."""


import pytest
from drawn_variants import with_variants
from synthetic_networks import random_mixed

from provision import read, verify
from provision.heuristics.core import lns
from provision.heuristics.core.greedy import METHODS as GREEDY
from provision.heuristics.core.schedule import Schedule
from provision.models.plans.plan import PlannedGpu
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry
from provision.solving import master

LIMITS = [{}, {"min_replicas": 2}, {"max_replicas": 1}, {"min_replicas": 2, "max_replicas": 3},
          {"max_share_per_gpu": 0.6}]
FLEETS = [dict(workloads=3), dict(fleet=(("a30", True), ("a30", False)), measured=True)]


def planned(instance, steps):
    return lns.solve(instance, Search(300.0, parameters={"iterations": steps})).plan


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
@pytest.mark.parametrize("limits", LIMITS)
def test_plans_hold_and_are_no_dearer_than_greedy(limits, rule):
    for fleet in FLEETS:
        drawn = random_mixed(1, **fleet).with_policy(latency_budget=rule)
        instance = drawn.replace(workloads=[one.model_copy(update=limits) for one in drawn.workloads])
        plan = planned(instance, 1000)
        assert verify(instance, plan).ok
        if needs(instance) <= GREEDY[0].features:
            assert objective_of(instance).value(plan) <= objective_of(instance).value(
                GREEDY[0].run(instance, Search()).plan
            ) * (1 + 1e-9)


def test_two_workloads_share_a_gpu_that_has_no_mig():
    """Also where each may have one replica and random arrivals are planned for; with variants too."""
    drawn = random_mixed(2, fleet=(("a30", False),)).with_policy(latency_budget="queueing")
    lone = drawn.replace(workloads=[one.model_copy(update={"max_replicas": 1}) for one in drawn.workloads])
    for instance in (lone, with_variants(lone, 0)):
        plan = planned(instance, 500)
        assert verify(instance, plan).ok and len(plan.gpus) == 1


def test_cheaper_gpus_without_data_are_of_no_use():
    """Neither in place of others, nor idle in the plan to begin with, as the last or the first entry."""
    drawn = random_mixed(1, fleet=(("a30", True),))
    priced, cheap = drawn.fleet[0].model_copy(update={"price_per_hour": 2.0}), FleetEntry(gpu="t4", price_per_hour=1.0)
    for fleet in ((priced, cheap), (cheap, priced)):
        instance = drawn.replace(fleet=fleet)
        best = planned(instance, 500)
        idle = best.model_copy(update={"gpus": (PlannedGpu(gpu="t4", mig=False, slices=()), *best.gpus)})
        again = lns.solve(instance, Search(300.0, start=idle, parameters={"iterations": 1500})).plan
        assert verify(instance, best).ok and verify(instance, again).ok
        assert objective_of(instance).value(again) <= objective_of(instance).value(best) == 2.0 * len(best.gpus)


def test_same_seed_same_answer():
    """However the steps are cut into pieces by the clock."""
    instance = read("parvagpu-s3-shared")
    one, other = (planned(instance, 600) for _ in range(2))
    assert one == other and one.method == "lns"


def test_a_known_bound_ends_the_search():
    instance = read("parvagpu-s1-shared")
    told = []
    found = lns.solve(instance, Search(60.0, bound=5.12, report=told.append))
    assert found.termination == "completed" and objective_of(instance).value(found.plan) == 5.12
    assert told[-1].objective == 5.12


@pytest.mark.parametrize("method", [lns, master])
def test_a_stop_in_greedy_ends_the_search_with_its_plan(monkeypatch, method):
    def stopped(instance, search):
        search.stop.ask()
        return solve(instance, search)

    solve, instance = lns.greedy.solve, read("parvagpu-s3-shared")
    monkeypatch.setattr(lns.greedy, "solve", stopped)
    found = method.solve(instance, Search(60.0))
    assert found.termination == "time_limit"
    assert objective_of(instance).value(found.plan) == objective_of(instance).value(solve(instance, Search()).plan)


def test_without_a_plan_to_begin_with_gpus_are_opened(monkeypatch):
    monkeypatch.setattr(lns, "first_plan", lambda *_: None)
    instance = read("parvagpu-s2-shared")
    plan = planned(instance, 3000)
    assert verify(instance, plan).ok and objective_of(instance).value(plan) <= 15.36


def test_without_progress_the_search_ends_by_itself(monkeypatch):
    """After its patience, not when the time is over, with the best plan so far."""
    monkeypatch.setattr(lns, "SCHEDULE", Schedule(patience=500))
    instance = read("parvagpu-s3-shared")
    found = lns.solve(instance, Search(300.0))
    assert found.termination == "completed" and objective_of(instance).value(found.plan) == 20.48

"""Replanning where workloads share GPUs: no dearer than from scratch, nothing changes without need, levels are kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.models.base.clock import stopping
from provision.models.plans.disturbance import disturbance
from provision.models.problem.objective import objective_of
from provision.replanning import around
from provision.replanning.replan import CHANGE_COST, replan
from provision.sweeps.parameters import changed


@pytest.fixture(scope="module")
def few():
    """Three workloads of iGniter's testbed, under half_slo, with any number of replicas."""
    instance = provision.read("igniter-testbed-12")
    kept = tuple(one.model_copy(update={"max_replicas": None}) for one in instance.workloads[:3])
    return instance.replace(name="few", workloads=kept)


@pytest.fixture(scope="module")
def plan(few):
    return provision.solve(few, "igniter", replay=False).plan


def weighted(instance, before, plan):
    return (
        objective_of(instance).value(plan)
        + CHANGE_COST * objective_of(instance).weight(instance.fleet[0]) * disturbance(before, plan).moved
    )


@settings(max_examples=3)
@given(factor=st.floats(0.3, 1.8))
def test_never_dearer_than_from_scratch(few, plan, factor):
    new = changed(few, {"rate": factor})
    found, scratch = replan(new, plan), provision.solve(new, replay=False, slack="no")
    assert found.report.ok
    assert found.weighted == pytest.approx(weighted(new, plan, found.plan))
    assert found.bound <= found.weighted * (1 + 1e-9)
    assert found.summary()["bound_of"] == "weighted"
    assert found.weighted <= weighted(new, plan, scratch.plan) * (1 + 1e-9)


def test_a_stopped_search_keeps_its_best_plan(few, plan, monkeypatch):
    def once(*given, solve=around.solve, **settings):
        found = solve(*given, **settings)
        stop.ask()
        return found

    monkeypatch.setattr(around, "solve", once)
    with stopping() as stop:
        assert replan(changed(few, {"rate": 1.3}), plan).report.ok


def test_a_plan_that_holds_and_is_cheapest_goes_on(few):
    running = provision.solve(few, replay=False)
    found = replan(few, running.plan)
    assert running.status == found.status == "optimal"
    assert found.changes.moved == 0 and found.weighted == running.objective


def test_levels(few, plan):
    """Rates alone may follow less traffic; with more, replicas are added and nothing is destroyed."""
    less, more = changed(few, {"rate": 0.9}), changed(few, {"rate": 1.6})
    calm = replan(less, plan, allow="batches")
    assert calm.report.ok and calm.changes.moved == 0
    assert replan(more, plan, allow="batches").plan is None
    added = replan(more, plan, allow="replicas")
    assert added.report.ok and added.changes.slices_destroyed == 0 and added.changes.replicas_started > 0


def test_a_new_replica_joins_a_gpu_with_room():
    """A workload that comes anew fits beside what runs, so no GPU is added."""
    instance = provision.read("igniter-testbed-12")
    three = tuple(one.model_copy(update={"rate_rps": 20.0, "slo_ms": 100.0}) for one in instance.workloads[:3])
    two = instance.replace(name="two", workloads=three[:2])
    [gpu] = (plan := provision.solve(two, "igniter", replay=False).plan).gpus
    assert sum(one.sm_share for one in gpu.slices[0].replicas) < 1
    found = replan(instance.replace(name="three", workloads=three), plan)
    assert found.changes.replicas_started == 1 and len(found.plan.gpus) == 1 and found.changes.slices_destroyed == 0

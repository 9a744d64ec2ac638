"""The master program on fleets that mix types and ways of sharing."""

import pytest

import provision
from provision.formulations.assignment import cpsat

A100 = {"gpu": "a100-80gb", "price_per_hour": 5.12}
V100 = {"gpu": "v100", "price_per_hour": 3.06}
T4 = {"gpu": "t4", "price_per_hour": 0.53}
DATA = {"a100-80gb": "parvagpu-a100", "v100": "igniter-v100", "t4": "igniter-t4-derived"}
WORKLOADS = (
    {"name": "photos", "model": "resnet50", "slo_ms": 100.0, "rate_rps": 400.0},
    {"name": "films", "model": "vgg19", "slo_ms": 100.0, "rate_rps": 200.0},
)


def problem(*fleet, workloads=WORKLOADS, objective="min_cost", **policy):
    """Two workloads on a fleet, with the performance data that ships for its types."""
    return provision.Instance(
        version=1, name="mixed", fleet=fleet, workloads=workloads, objective=objective,
        performance=list(dict.fromkeys(DATA[entry["gpu"]] for entry in fleet)),
        policy={"latency_budget": "half_slo", "safety": 0.9} | policy,
    )


def proven(instance):
    """The objective of a plan that is verified and proven."""
    result = provision.solve(instance)
    assert result.verified
    assert result.status == "optimal"
    assert result.objective == pytest.approx(result.bound)
    return result.objective


@pytest.mark.parametrize(("fleet", "cost"), [
    ((V100,), 3.06), ((A100, V100, T4), 1.06),
    ((A100 | {"count": 1}, V100 | {"count": 1}), 3.06),
])
def test_more_choice_is_never_dearer(fleet, cost):
    """MIG and MPS, measured and fitted data are one problem."""
    assert proven(problem(*fleet)) == cost


def test_sharing_slices_only_loosens():
    assert proven(problem(V100, share_slices=True)) == 3.06


def test_several_replicas_may_share_a_gpu():
    assert proven(problem(V100, workloads=[one | {"min_replicas": 2} for one in WORKLOADS])) == 3.06


def test_a_workload_may_be_split_over_shared_gpus():
    """iGniter's testbed, which takes six V100s with one replica each, takes five where workloads may be split."""
    testbed = provision.read("igniter-testbed-12")
    assert {one.max_replicas for one in testbed.workloads} == {1}
    free = [one.model_copy(update={"max_replicas": None}) for one in testbed.workloads]
    assert proven(testbed.replace(workloads=free, objective="min_gpus")) == 5


def test_limits_per_gpu_take_gpus_of_their_own():
    """Half of each workload on a GPU: no plan has fewer than two."""
    assert proven(problem(A100, workloads=[one | {"max_share_per_gpu": 0.5} for one in WORKLOADS],
                          objective="min_gpus")) == 2


def test_a_fleet_that_is_too_small_is_proven_so():
    found = provision.solve(problem(V100 | {"count": 1}, workloads=[WORKLOADS[0] | {"rate_rps": 3000.0}]))
    assert found.status == "infeasible"
    assert found.termination == "proved"


@pytest.mark.parametrize("name", ["parvagpu-s1", "parvagpu-s3", "parvagpu-s5"])
def test_isolated_slices_alone(name):
    """The master by itself agrees with the ledger."""
    found = provision.solve(name, "master")
    assert found.status == "optimal"
    assert found.objective == provision.solve(name).objective


def test_the_explicit_model_agrees():
    """Small mixed fleets: explicit GPUs and the master prove the same number."""
    instance = problem(A100 | {"count": 2}, objective="min_gpus",
                       workloads=[one | {"rate_rps": 900.0, "max_replicas": 3} for one in WORKLOADS])
    explicit = provision.solve(instance, cpsat.METHODS[0].name)
    assert explicit.status == "optimal"
    assert explicit.objective == proven(instance)


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
def test_workloads_that_need_no_replica_cost_nothing(rule):
    instance = provision.read("parvagpu-s1")
    policy = instance.policy.model_copy(update={"latency_budget": rule, "share_slices": True})
    idle = [one.model_copy(update={"rate_rps": 0.0, "min_replicas": 0}) for one in instance.workloads]
    result = provision.solve(instance.replace(workloads=idle, policy=policy), "master")
    assert (result.status, result.objective, result.bound, result.plan.gpus) == ("optimal", 0, 0, ())

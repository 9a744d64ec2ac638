"""Every combination of options: the assignment twins against brute force, each other and easier instances."""

import pytest
from combined import random_combination
from combined_checks import answers_of, faults_of
from hypothesis import given, settings
from hypothesis import strategies as st
from small_solver import solve as solve_small

import provision

TWINS = ("assignment-cpsat", "assignment-milp")


@pytest.mark.parametrize("seed", range(8))
def test_twins_agree_with_brute_force_and_more_choice_is_never_worse(seed):
    """No bound is beaten, nothing that has a plan is infeasible, also where a limit is lifted or an option added."""
    faults, answers = faults_of(random_combination(seed), TWINS, time_limit_s=2, loosenings=2)
    assert not faults
    assert len(answers) == len(TWINS)


@settings(max_examples=15, derandomize=True)
@given(seed=st.integers(1000, 10**6))
def test_no_combination_contradicts_brute_force(seed):
    """Fleets, policies, limits and objectives drawn at random."""
    faults, _ = faults_of(random_combination(seed), TWINS[:1], time_limit_s=5, loosenings=0)
    assert not faults


@pytest.mark.parametrize(
    ("seed", "methods"), [(12, TWINS), (30, ("master", *TWINS)), (148, ("auto",)), (150, ("master",))]
)
def test_methods_agree_where_replicas_share_gpus(seed, methods):
    """Under queueing, where two files describe a GPU type, and with few replicas alone or on shared GPUs."""
    faults, answers = faults_of(random_combination(seed, every=True), methods, time_limit_s=5, loosenings=1)
    assert not faults
    assert len(answers) == len(methods)


def test_a_bound_on_throughput_is_not_rounded_below_the_plan():
    answers, faults = answers_of(random_combination(352, every=True), ["assignment-cpsat"], time_limit_s=5)
    assert faults == [] and answers[0].bound >= answers[0].value


def test_brute_force_keeps_the_slo_of_a_workload_without_requests():
    """Two GPUs would do if a replica that is routed nothing might be late beside another on a shared slice."""
    plan = solve_small(random_combination(795, every=True)).plan
    assert plan is None or len(plan.gpus) > 2


def test_tiers_of_a_gpu_type_that_are_drawn_at_one_price_are_set_apart():
    """An instance with equal entries would be refused."""
    prices = [entry.price_per_hour for entry in random_combination(804, every=True).fleet if entry.gpu == "t4"]
    assert prices == pytest.approx([3.67, 3.68])


def _mixed_fleet(**changes):
    """A100s under MIG with measured segments beside V100s under MPS, for two small workloads."""
    entries = [{"gpu": "a100-80gb", "price_per_hour": 5.12}, {"gpu": "v100", "price_per_hour": 3.06}]
    workloads = [{"name": "r", "model": "resnet50", "slo_ms": 100.0, "rate_rps": 400.0},
                 {"name": "v", "model": "vgg19", "slo_ms": 100.0, "rate_rps": 200.0}]
    return {"fleet": entries, "workloads": workloads} | changes


@pytest.mark.parametrize("name", TWINS)
def test_replicas_in_any_number_on_two_gpu_types_are_answered(name):
    """Forty units and thirty-two batches for replicas in any number: a plan and a bound below it."""
    instance = provision.Instance(version=1, name="mixed", performance=("parvagpu-a100", "igniter-v100"),
                                  **_mixed_fleet())
    found = provision.solve(instance, name, 10, replay=False)
    assert found.verified and found.bound <= found.objective * (1 + 1e-9)

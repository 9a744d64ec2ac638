"""The small solver agrees with brute force over states, and the product is never better than it nor proves more."""

import pytest
import small_solver
from combined import random_combination
from combined_oracle import best_combined
from synthetic import random_instance

import provision

ROUNDING = 1e-6


def known(instance):
    """Whether the small solver knows all that an instance asks for."""
    try:
        small_solver._check(instance)
    except ValueError:
        return False
    return True


COMBINATIONS = [seed for seed in range(60) if known(random_combination(seed))]


@pytest.mark.parametrize("seed", COMBINATIONS[:10])
def test_it_finds_what_brute_force_over_states_finds(seed):
    """Within four GPUs, since the states are listed for no more."""
    instance = random_combination(seed)
    answer, best = small_solver.solve(instance), best_combined(instance, 4)
    if answer.plan is None or len(answer.plan.gpus) > 4:
        assert best is None or instance.objective == "max_throughput"
    else:
        assert provision.verify(instance, answer.plan).ok
        assert answer.value == pytest.approx(best, rel=ROUNDING)


@pytest.mark.parametrize("seed", range(6))
def test_the_product_proves_no_more_and_plans_no_better(seed):
    instance = random_instance(seed, workloads=3, gpus=("a30", "t4"))
    answer, found = small_solver.solve(instance), provision.solve(instance, time_limit_s=5, replay=False)
    assert (answer.plan is None) == (found.plan is None)
    if answer.value is not None:
        assert provision.verify(instance, answer.plan).ok
        assert found.bound <= answer.value * (1 + ROUNDING) and found.objective >= answer.value * (1 - ROUNDING)


def test_two_models_on_one_v100_take_one_gpu_with_both():
    """By the small solver's own plan, which the verifier accepts, and by the product's proof."""
    shipped = provision.read("igniter-motivation")
    instance = shipped.replace(workloads=shipped.workloads[:2])
    coarse = instance.performance[0].model_copy(update={"max_batch": 4})
    hardware = coarse.hardware.model_copy(update={"unit_share": 0.25})
    instance = instance.replace(performance=(coarse.model_copy(update={"hardware": hardware}),))
    answer, found = small_solver.solve(instance), provision.solve(instance, time_limit_s=5, replay=False)
    assert provision.verify(instance, answer.plan).ok
    assert found.status == "optimal" and found.objective == pytest.approx(answer.value)


def test_it_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="shared MIG slices"):
        small_solver.solve(provision.read("parvagpu-s1-shared"))

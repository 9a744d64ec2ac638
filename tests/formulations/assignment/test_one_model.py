"""The one model against brute force, where slots of every kind meet: MIG slots that replicas share, whole GPUs under
interference, replicas in any number, two GPU types.
"""

import numpy as np
import pytest
import small_solver
from combined import random_combination
from combined_checks import faults_of
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import measured_tables
from synthetic_sharing import random_sharing

import provision
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry

TWINS = ("assignment-cpsat", "assignment-milp")


def free(seed, workloads=2, mixed=False, data="igniter"):
    """Replicas in any number under interference on coarse V100s, by iGniter's or co-location data; if ``mixed``, also
    an A30 with MIG by measured segments.
    """
    draw, one = np.random.default_rng(seed), random_sharing(seed, workloads=workloads, hot=bool(seed % 2))
    files, fleet = [one.performance[0].model_copy(update={"max_batch": 3})], [*one.fleet]
    coarse = files[0].hardware.model_copy(update={"unit_share": 0.25})
    files = [files[0].model_copy(update={"hardware": coarse})]
    if data == "colocation":
        shipped = one.replace(performance=["colocation-v100"]).performance[0]
        files = [shipped.model_copy(update={"unit_share": 0.25, "max_batch": 3})]
    if mixed:
        fleet = [fleet[0].model_copy(update={"price_per_hour": 3.0}), FleetEntry(gpu="a30", price_per_hour=2.0)]
        files += [measured_tables(draw, "a30", sorted({workload.model for workload in one.workloads}))]
    served = [workload.model_copy(update={"max_replicas": None, "slo_ms": workload.slo_ms * 1.5,
                                          "rate_rps": workload.rate_rps * float(draw.uniform(0.5, 2.5))})
              for workload in one.workloads]
    return one.replace(workloads=served, fleet=fleet, performance=files)


@settings(max_examples=10, derandomize=True)
@given(seed=st.integers(0, 10**6), mixed=st.booleans(), data=st.sampled_from(["igniter", "colocation"]),
       name=st.sampled_from(TWINS))
def test_replicas_in_any_number_agree_with_brute_force(seed, mixed, data, name):
    """The bound is no more than the optimum over all patterns, and the plan no better; nearly always both meet."""
    instance = free(seed, mixed=mixed, data=data)
    best, found = small_solver.solve(instance).value, provision.solve(instance, name, 20, replay=False)
    assert (best is None) == (found.status == "infeasible")
    if best is not None:
        assert found.verified and found.objective >= best * (1 - 1e-6) and found.bound <= best * (1 + 1e-6)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("data", ["igniter", "colocation"])
def test_replicas_in_any_number_are_proven_on_two_gpu_types(name, data):
    """What the twins prove here is what the small solver's program over all patterns has."""
    proven = 0
    for seed in range(4):
        instance = free(seed, mixed=True, data=data)
        best, found = small_solver.solve(instance).value, provision.solve(instance, name, 20, replay=False)
        if best is not None and found.status == "optimal":
            assert found.objective == pytest.approx(best, rel=1e-6)
            proven += 1
    assert proven >= 2


SHARED = (5, 6, 27, 32, 35, 40, 55, 64, 70)
"""Seeds of random combinations with MIG slots that replicas share."""


@pytest.mark.parametrize("seed", SHARED)
def test_shared_mig_slots_contradict_no_brute_force(seed):
    """Replicas in MIG slots that slow each other: no bound is beaten, no plan is better than all plans."""
    faults, answers = faults_of(random_combination(seed, every=True), TWINS, time_limit_s=5, loosenings=0)
    assert not faults
    assert len(answers) == len(TWINS)


def test_the_drawn_instances_are_of_every_kind():
    """Some have MIG slots that replicas share, and some ask for the most throughput of them."""
    several = [random_combination(seed, every=True) for seed in SHARED]
    for one in several:
        assert one.policy.share_slices and any(entry.partitioned for entry in one.fleet)
        assert any(data.sharing == "if_allowed" for data in one.performance)
    assert len({one.objective for one in several}) >= 2
    assert objective_of(free(0, mixed=True)).weight(free(0, mixed=True).fleet[1]) == 2.0

"""What iGniter compares with beside first-fit: gpu-lets+ and GSLICE+ on its testbed and on random workloads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.instances.generators.igniter import generate
from provision.models.performance.operating_points import Member
from provision.solving import self_tuning

SHARES = (0.2, 0.4, 0.5, 0.6, 0.8, 1.0)


def alone(instance, replica, batch):
    """What a replica does alone on its share with a batch."""
    [data] = instance.performance
    member = Member(instance.workload[replica.workload].model, batch, 1, replica.sm_share)
    return data.predict("whole", [member])[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(0, 200))
def test_gpulets_plus_fills_gpus_in_pairs(count, seed):
    """Every workload once, at most two on a GPU, the second on all that is left and in time when it came."""
    instance = generate(count, seed)
    result = provision.solve(instance, "gpulets+")
    if result.plan is None:
        assert "too little for" in result.reason
        return
    assert sorted(one.workload for *_, one in result.plan.replicas()) == sorted(instance.workload)
    assert (result.status == "feasible") == result.verified
    for gpu in result.plan.gpus:
        first, *second = gpu.slices[0].replicas
        assert len(second) <= 1 and first.sm_share in SHARES
        found = instance.performance[0].predict("whole", [
            Member(instance.workload[one.workload].model, one.batch, 1, one.sm_share) for one in (first, *second)
        ])
        assert all(one.sm_share == pytest.approx(1 - first.sm_share) for one in second)
        for one, prediction in zip(second, found[1:], strict=True):
            assert prediction.latency_ms <= instance.budget_ms(instance.workload[one.workload])


def test_gpulets_plus_takes_the_smallest_batch_that_carries_the_rate():
    instance = provision.read("igniter-testbed-12")
    for *_, one in provision.solve(instance, "gpulets+").plan.replicas():
        assert alone(instance, one, one.batch).throughput_rps >= one.rate_rps
        assert alone(instance, one, one.batch).latency_ms <= instance.budget_ms(instance.workload[one.workload])
        assert one.batch == 1 or alone(instance, one, one.batch - 1).throughput_rps < one.rate_rps


def test_gpulets_plus_does_not_look_again_at_who_was_there():
    """On the testbed a newcomer slows down the one beside it, and the plan says so."""
    result = provision.solve(provision.read("igniter-testbed-12"), "gpulets+")
    assert result.status == "unknown" and result.report.violated
    first = {gpu.slices[0].replicas[0].workload for gpu in result.plan.gpus}
    assert set(result.report.violated) <= first and all(name in result.reason for name in result.report.violated)


def test_a_rate_for_more_than_a_gpu_is_refused():
    instance = provision.read("igniter-motivation")
    many = [one.model_copy(update={"rate_rps": 1e5}) for one in instance.workloads]
    result = provision.solve(instance.replace(workloads=many), "gpulets+")
    assert result.plan is None and result.status in ("unknown", "infeasible") and result.reason


def test_more_requests_than_can_be_replayed_are_refused():
    instance = provision.read("igniter-motivation")
    many = [one.model_copy(update={"rate_rps": 1e7}) for one in instance.workloads]
    result = provision.solve(instance.replace(workloads=many), "gslice+")
    assert result.plan is None and "more requests than a replay can hold; use igniter" in result.reason


def test_gslice_plus_breaks_the_slos_that_the_paper_says():
    """iGniter's Table 1: one GPU, AlexNet and ResNet-50 break theirs."""
    result = provision.solve(provision.read("igniter-motivation"), "gslice+")
    assert (result.report.gpus, result.status, result.report.violated) == (1, "unknown", ["alexnet", "resnet50"])


def test_gslice_plus_keeps_the_placement_and_moves_in_steps(monkeypatch):
    """From equal shares on, an adjustment gives more to those whose rate is not served and a step at most to any."""
    instance = provision.read("igniter-testbed-12")
    placed = provision.solve(instance, "igniter").plan
    plans = []
    for rounds in (0, 1):
        monkeypatch.setattr(self_tuning, "ADJUSTMENTS", rounds)
        plans.append(provision.solve(instance, "gslice+").plan)
    for before, gpu in zip(plans[0].gpus, placed.gpus, strict=True):
        names = [one.workload for one in gpu.slices[0].replicas]
        assert names == [one.workload for one in before.slices[0].replicas]
        assert max(one.sm_share for one in before.slices[0].replicas) <= 1 / len(names)
    report = provision.simulate(instance, plans[0], self_tuning.REPLAY_S, arrival_cv=0.0)
    short = {one.workload for one in report.workloads if one.throughput_rps < 0.9 * one.offered_rps}
    steps = {one.workload: one.sm_share - old.sm_share for (*_, old), (*_, one) in
             zip(plans[0].replicas(), plans[1].replicas(), strict=True)}
    assert short and all(steps[name] == pytest.approx(0.1) for name in short)
    assert {round(step, 6) for step in steps.values()} <= {-0.1, 0.0, 0.1} and min(steps.values()) < 0

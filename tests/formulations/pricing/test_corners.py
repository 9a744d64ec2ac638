"""Corners in which methods and verifier once disagreed: rounding, idle workloads, shares, features that meet."""

import pytest

import provision
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


def table(**models):
    """Measured segments on an A100-80GB."""
    return MeasuredSegments(
        version=1, name="table", kind="measured-segments", gpu="a100-80gb",
        models={name: {"points": points} for name, points in models.items()},
    )


def instance(data, *workloads, fleet=None, **policy):
    return provision.Instance(
        version=1, name="corner", fleet=[fleet or {"gpu": "a100-80gb"}], performance=data, policy=policy,
        workloads=[{"model": "m", "slo_ms": 100.0} | one for one in workloads],
    )


SMALL = table(m=[("1g.10gb", 4, 1, 100.0, 10.0)])


@pytest.mark.parametrize("fleet", [None, {"gpu": "a100-80gb", "count": 5}])
def test_an_idle_workload_needs_no_spreading(fleet):
    """max_share_per_gpu of a workload at rate 0 asks for no GPUs, neither in plans nor in bounds."""
    idle = {"name": "idle", "rate_rps": 0.0, "max_share_per_gpu": 0.1}
    result = provision.solve(instance(SMALL, idle, {"name": "busy", "rate_rps": 50.0}, fleet=fleet), "master")
    assert (result.status, result.objective) == ("optimal", 1)


def test_a_latency_equal_to_its_budget_is_met_whatever_the_rounding():
    """46 / 2 * 0.7 is a little below 16.1 in floating point; a batch of 16.1 ms is within it all the same."""
    data = table(m=[("1g.10gb", 4, 1, 100.0, 16.1)])
    result = provision.solve(instance(data, {"name": "a", "rate_rps": 50.0, "slo_ms": 46.0}, safety=0.7))
    assert result.status == "optimal"


@pytest.mark.parametrize("method", ["parvagpu", "greedy", "auto"])
def test_a_rate_that_is_a_multiple_of_the_throughput(method):
    """33 times 262.26 takes 33 segments of a model that runs on 7g only, beside a model on 1g."""
    data = table(m=[("7g.80gb", 4, 1, 262.26, 10.0)], other=[("1g.10gb", 4, 1, 100.0, 10.0)])
    big = {"name": "big", "rate_rps": 8654.58}
    result = provision.solve(instance(data, big, {"name": "small", "model": "other", "rate_rps": 1.0}), method)
    assert result.objective == 34


@pytest.mark.parametrize("parts", [3, 7, 12, 13, 14])
@pytest.mark.parametrize("method", ["master", "greedy"])
def test_a_share_of_one_nth_takes_n_gpus(method, parts):
    """max_share_per_gpu 1/n is met by n GPUs, although 1/n is no decimal number."""
    result = provision.solve(
        instance(SMALL, {"name": "a", "rate_rps": 90.0, "max_share_per_gpu": 1 / parts}), method
    )
    assert result.objective == parts


@pytest.mark.parametrize(("share", "most", "rate"), [(0.5, 2, 150.0), (0.5, 3, 250.0), (0.34, 4, 350.0)])
def test_spread_plans_keep_to_the_largest_number_of_replicas(share, most, rate):
    """max_share_per_gpu and max_replicas together: no plan has a replica more."""
    asked = {"max_share_per_gpu": share, "max_replicas": most, "rate_rps": rate}
    result = provision.solve(instance(SMALL, *({"name": name} | asked for name in "abc")), "master")
    assert result.verified
    assert len(list(result.plan.replicas())) <= 3 * most


def test_whole_shares_of_one_gpu_are_too_much_under_interference():
    """Three replicas that each hold all SMs of a V100 are rejected, and so is a whole GPU at slice 7."""
    motivation = provision.read("igniter-motivation")
    replicas = tuple(Replica(workload=one.name, batch=4, rate_rps=one.rate_rps) for one in motivation.workloads)
    gpu = PlannedGpu(gpu="v100", mig=False, slices=(Slice(profile="whole", start=7, replicas=replicas),))
    report = provision.verify(motivation, Plan(version=1, instance="igniter-motivation", gpus=(gpu,)))
    assert {"capacity", "start"} <= {violation.kind for violation in report.violations}


def test_shared_slices_and_failure_tolerance_meet_in_a_plan_that_holds():
    """At least as many GPUs are needed as the spreading takes."""
    shared = provision.read("parvagpu-s2-shared")
    spread = [one.model_copy(update={"max_share_per_gpu": 0.4}) for one in shared.workloads[:2]]
    result = provision.solve(shared.replace(workloads=spread, objective="min_gpus"))
    assert result.verified
    assert 3 <= result.bound <= result.objective


def test_a_plan_that_fails_is_not_called_verified(capsys):
    """ffd's plan of the testbed breaks SLOs: the command says so and exits with 1."""
    from provision.cli import main

    assert main(["solve", "igniter-testbed-12", "--method", "ffd"]) == 1
    assert "verified" not in capsys.readouterr().out

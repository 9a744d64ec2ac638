"""What every method owes, on random instances and on ParvaGPU's measured tables."""

import contextlib
from pathlib import Path

import pytest
from combined import random_combination
from synthetic import random_instance

import provision
from provision.instances.importers.parvagpu import import_scenario
from provision.instances.read import repeated
from provision.models.problem.instance import Instance

PARVAGPU = Path(__file__).resolve().parents[4] / "shared" / "data" / "parvagpu"
measured = pytest.mark.skipif(not PARVAGPU.is_dir(), reason="ParvaGPU's tables are not beside the checkout")

FLEETS = [("a100-80gb",), ("a30",), ("h100-80gb", "a30"), ("a100-80gb", "t4"), ("v100",)]
EXACT = ["auto", "master"]


@pytest.mark.parametrize("seed", range(2, 120, 12))
def test_plans_hold_and_heuristics_do_not_beat_proven_bounds(seed):
    """Every applicable method's plan passes the verifier; no objective is below any proven bound."""
    instance = random_instance(
        seed, workloads=1 + seed % 5, gpus=FLEETS[seed % len(FLEETS)], limited=seed % 7 == 0, tolerant=seed % 3 == 0
    )
    few = {"lns": {"iterations": "1000"}}
    results = {name: provision.solve(instance, name, **few.get(name, {})) for name in applicable(instance)}
    plans = {name: result for name, result in results.items() if result.plan is not None}
    bounds = [result.bound for result in results.values() if result.bound is not None]
    assert all(result.verified for result in plans.values())
    assert all(result.objective >= max(bounds) * (1 - 1e-9) for result in plans.values() if bounds)
    if plans:
        assert results["auto"].objective <= min(result.objective for result in plans.values()) * (1 + 1e-9)
    assert not (plans and any(result.status == "infeasible" for result in results.values()))


def applicable(instance):
    """Names of the methods that do not refuse an instance."""
    for name, method in provision.methods().items():
        with contextlib.suppress(provision.UnsupportedError):
            method.check(instance)
            yield name


@pytest.mark.parametrize("seed", range(60))
def test_greedy_is_never_worse_than_parvagpu(seed):
    """On one MIG type, greedy needs at most ParvaGPU's GPUs."""
    instance = random_instance(seed, workloads=2 + seed % 6, gpus=("a100-80gb",), gpus_each=3)
    greedy, parvagpu = (provision.solve(instance, name) for name in ("greedy", "parvagpu"))
    assert greedy.objective <= parvagpu.objective


@pytest.mark.parametrize("seed", [1629, 1729])
def test_greedy_for_throughput_returns_no_late_plan(seed):
    """For the most throughput with shared slices, replicas must be in time at full throughput, where the plan on few
    GPUs is late. A late plan is left out; returned, it would raise a MethodError.
    """
    result = provision.solve(random_combination(seed, every=True), "greedy", 2, replay=False)
    assert result.plan is None
    assert "greedy found no plan" in result.reason


@pytest.mark.parametrize("name", EXACT)
def test_same_seed_same_plan(name):
    """Two runs agree to the last replica."""
    instance = provision.read("parvagpu-s3")
    first, second = (provision.solve(instance, name, seed=3) for _ in range(2))
    assert first.plan == second.plan
    assert (first.objective, first.bound) == (second.objective, second.bound)


@measured
@pytest.mark.parametrize(
    ("row", "parvagpu", "gpcs", "optimum"),
    [(1, 2, 10, 2), (2, 3, 20, 3), (3, 5, 33, 5), (4, 7, 48, 7), (5, 13, 88, 12), (6, 16, 112, 15)],
)
def test_scenarios_on_measured_tables(row, parvagpu, gpcs, optimum):
    """ParvaGPU's GPUs and GPCs on S1-S6, and the proven optimum.

    S5 takes 88 GPCs here and 90 in the public program, which books the throughput of the last segment for
    every segment that is not of the optimal size, and so splits one service into two segments too many.
    """
    instance = import_scenario(PARVAGPU, row, 0.9)
    theirs, proof, ours = (provision.solve(instance, m) for m in ("parvagpu", "master", "greedy"))
    assert (theirs.report.gpus, theirs.report.gpcs) == (parvagpu, gpcs)
    assert (proof.status, proof.report.gpus, proof.bound) == ("optimal", optimum, optimum)
    assert ours.report.gpus <= optimum + 1


@measured
def test_repeated_scenario_on_measured_tables():
    """S5 with every workload ten times: 126 GPUs by ParvaGPU, 118 proven."""
    instance = repeated(import_scenario(PARVAGPU, 5, 0.9), 10)
    assert provision.solve(instance, "parvagpu").report.gpus == 126
    proof = provision.solve(instance, "auto")
    assert (proof.status, proof.report.gpus) == ("optimal", 118)


@pytest.mark.parametrize("number", range(1, 7))
def test_shipped_scenarios_solve_to_proof(number):
    """S1-S6 on the shipped fit: proven within the time limit, and no worse than ParvaGPU."""
    instance = provision.read(f"parvagpu-s{number}")
    ours, theirs = provision.solve(instance), provision.solve(instance, "parvagpu")
    assert ours.status == "optimal"
    assert ours.objective <= theirs.objective


def test_unmet_slo_names_the_workload_and_one_that_works():
    """An SLO that no slice meets is infeasible; the one proposed is met, a little less is not."""
    instance = provision.read("parvagpu-s1")
    strict = instance.workloads[0].model_copy(update={"slo_ms": 1.0})
    result = provision.solve(instance.replace(workloads=[strict]))
    assert result.status == "infeasible"
    assert "workload bert" in result.reason
    enough = float(result.reason.split("; slo_ms ")[1].split()[0])
    for slo, status in ((enough, "optimal"), (enough * 0.999, "infeasible")):
        changed = instance.replace(workloads=[strict.model_copy(update={"slo_ms": slo})])
        assert provision.solve(changed).status == status


def test_small_fleet_is_infeasible_and_the_share_it_names_fits():
    """Four GPUs are too few for S3; at the share of all rates that is named they are enough."""
    instance = provision.read("parvagpu-s3")
    few = instance.replace(fleet=[instance.fleet[0].model_copy(update={"count": 4})])
    result = provision.solve(few)
    assert result.status == "infeasible"
    share = 0.97 * float(result.reason.split("all rates at ")[1].split(" %")[0]) / 100
    scaled = [one.model_copy(update={"rate_rps": one.rate_rps * share}) for one in instance.workloads]
    assert provision.solve(few.replace(workloads=scaled)).plan is not None


def test_method_refuses_what_it_cannot_do_and_says_what_can():
    """parvagpu plans one GPU type."""
    instance = random_instance(1, gpus=("a100-80gb", "t4"))
    with pytest.raises(provision.UnsupportedError, match=r"more than one fleet entry.*use --method auto"):
        provision.solve(instance, "parvagpu")


def test_idle_workload_keeps_a_replica_unless_told():
    """Rate 0 takes one replica by default and none with min_replicas 0."""
    instance = provision.read("parvagpu-s1")
    for least, replicas in ((1, 1), (0, 0)):
        idle = instance.workloads[0].model_copy(update={"rate_rps": 0.0, "min_replicas": least})
        result = provision.solve(instance.replace(workloads=[idle]))
        assert result.verified
        assert len(list(result.plan.replicas())) == replicas


SHARED = {"version": 2, "name": "shared", "performance": ["igniter-t4-derived"], "objective": "max_throughput",
          "policy": {"latency_budget": "half_slo"}, "fleet": [
              {"gpu": "t4", "price_per_hour": price, "count": count} for price, count in ((2.9, 1), (0.5, 2))],
          "workloads": [{"name": "w0", "model": "resnet50", "slo_ms": 60, "rate_rps": 500},
                        {"name": "w1", "model": "alexnet", "slo_ms": 40, "rate_rps": 900}]}


@pytest.mark.parametrize(("data", "gpu"), [("igniter-v100", "v100"), ("colocation-v100", "v100"),
                                           ("gpulets-2080ti", "rtx2080ti")])
def test_idle_workloads_that_need_no_replica_need_no_gpu(data, gpu):
    """Also on GPUs that replicas share: an empty plan, and no error."""
    idle = {"name": "idle", "model": "resnet50", "slo_ms": 160, "rate_rps": 0, "min_replicas": 0}
    instance = Instance.model_validate({
        "version": 2, "name": "idle", "workloads": [idle], "performance": [data],
        "policy": {"latency_budget": "half_slo", "share_slices": True}, "fleet": [{"gpu": gpu, "price_per_hour": 3.0}]})
    found = [provision.solve(instance, name) for name in applicable(instance) if name in ("greedy", "lns", "auto")]
    assert [one.objective for one in found] == [0] * len(found) and len(found) > 1


def test_throughput_on_all_tiers_of_a_shared_type():
    """The first plan may stand on any price tier of a GPU type; each tier has slice types of its own."""
    found = provision.solve(random_combination(5293, every=True), "greedy", replay=False)
    assert found.verified and found.objective > 0


@pytest.mark.parametrize("count", [2, 18])
@pytest.mark.parametrize("objective", ["min_cost", "max_throughput"])
def test_shares_per_gpu_of_workloads_that_share(objective, count):
    """A GPU carries at most half of each, also where many workloads are divided into parts."""
    workloads = [{"name": f"w{at}", "model": ("resnet50", "alexnet")[at % 2], "slo_ms": 60 + at, "rate_rps": 20 + at,
                  "max_share_per_gpu": 0.5} for at in range(count)]
    found = provision.solve(Instance.model_validate(SHARED | {"objective": objective, "workloads": workloads, "fleet": [
        {"gpu": "t4", "price_per_hour": 0.5, "count": 6}]}), "greedy", replay=False)
    assert found.verified and len(found.plan.gpus) > 1


@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@pytest.mark.parametrize("name", ["greedy", "auto"])
def test_workloads_that_no_slice_serves_alone_may_share(name, objective):
    """With shared slices they are no error, however few milliseconds they have."""
    workloads = [*SHARED["workloads"], {"name": "fast", "model": "vgg19", "slo_ms": 2, "rate_rps": 300}]
    instance = Instance.model_validate(SHARED | {"objective": objective, "workloads": workloads, "policy": {
        "latency_budget": "half_slo", "share_slices": True}})
    found = provision.solve(instance, name, time_limit_s=1, replay=False)
    assert found.plan is None and "fast" in found.reason


def test_share_per_gpu_and_replicas_that_contradict_each_other():
    """Two GPUs are asked for and one replica is allowed: that is proven, and said."""
    workloads = [*SHARED["workloads"], {"name": "wide", "model": "vgg19", "slo_ms": 100, "rate_rps": 50,
                                        "max_share_per_gpu": 0.5, "max_replicas": 1}]
    found = provision.solve(Instance.model_validate(SHARED | {"objective": "min_cost", "workloads": workloads}))
    assert found.status == "infeasible" and "asks for 2 GPUs or more, and max_replicas is 1" in found.reason


@pytest.mark.parametrize("name", ["melange", "inferno"])
def test_methods_of_whole_gpus_say_where_there_are_none(name):
    """Measured on small MIG slices alone."""
    table = {"version": 1, "name": "small", "kind": "measured-segments", "gpu": "a30",
             "models": {"m": {"points": [["1g.6gb", 1, 1, 100.0, 10.0]]}}}
    found = provision.solve(Instance.model_validate({
        "version": 2, "name": "none", "fleet": [{"gpu": "a30", "price_per_hour": 1.0}], "performance": [table],
        "workloads": [{"name": "w", "model": "m", "slo_ms": 100, "rate_rps": 50}]}), name, replay=False)
    assert found.plan is None and "whole GPUs" in found.reason


@pytest.mark.parametrize("share", [0.5, 0.34, 0.2])
def test_largest_share_spreads_a_workload(share):
    """A workload that may have a part of its rate on one GPU stands on at least 1/part of them."""
    instance = provision.read("parvagpu-s1")
    spread = [one.model_copy(update={"max_share_per_gpu": share}) for one in instance.workloads]
    result = provision.solve(instance.replace(workloads=spread))
    assert result.verified
    gpus = {name: set() for name in instance.workload}
    for at, _, _, replica in result.plan.replicas():
        gpus[replica.workload].add(at)
    assert all(len(found) >= 1 / share for found in gpus.values())

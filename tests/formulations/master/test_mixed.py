"""Slices shared by different workloads: the closed networks' prediction, and plans that use it."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_solver import solve as solve_small
from synthetic_networks import random_mixed

import provision
from provision.formulations.pricing.shared_mig.shared_relaxation import relaxed
from provision.formulations.search.segments import best_segments
from provision.instances.importers.parvagpu import import_scenario, sharing
from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member

PARVAGPU = Path(__file__).resolve().parents[4] / "shared" / "data" / "parvagpu"
DATA = load_performance("parvagpu-a100")
MODELS = sorted(DATA.models)

members = st.builds(
    Member,
    model=st.sampled_from(MODELS),
    batch=st.sampled_from([1, 2, 4, 8, 16, 32]),
    processes=st.integers(1, 3),
    sm_share=st.just(1.0),
    rate_rps=st.floats(0.1, 60),
    fill_ms=st.floats(0, 500),
    turn=st.none(),
    partly_filled=st.just(False),
    tokens=st.none(),
)
slices = st.sampled_from(DATA.profiles)
STEPS = 600


def _most_used(member, network, compute):
    """The most of a slice's time, at the rates at which one request more fills a batch and at the routed one."""
    filling = [size * 1000 / member.fill_ms * (1 - 1e-12) for size in range(1, member.batch)] if member.fill_ms else []
    return max(
        rps * max(network.gpu_ms(size, compute) / (1000 * size) for size in range(
            min(member.batch, math.floor(1 + rps * member.fill_ms / 1000)), member.batch + 1))
        for rps in [*(one for one in filling if one < member.rate_rps), member.rate_rps])


@given(profile=slices, pair=st.lists(members, min_size=2, max_size=4), extra=members)
@settings(max_examples=100)
def test_a_further_neighbour_slows_everybody(profile, pair, extra):
    """Nobody is faster beside one workload more, and every latency covers at least the work itself."""
    before, after = DATA.predict(profile, pair), DATA.predict(profile, [*pair, extra])
    for member, one, other in zip(pair, before, after, strict=False):
        network, compute = DATA.models[member.model].coefficients, int(profile[0])
        assert other.latency_ms >= one.latency_ms * (1 - 1e-9)
        assert one.latency_ms >= network.gpu_ms(member.batch, compute)


@given(profile=slices, pair=st.lists(members, min_size=2, max_size=4))
@settings(max_examples=100)
def test_latency_is_that_of_the_longest_batch_slowed_by_the_utilisation(profile, pair):
    """A batch takes Z + S / (1 - U), at most Z + P S; U is the most at any rate up to the routed one."""
    compute, launching = int(profile[0]), sum(member.processes for member in pair)
    networks = [DATA.models[member.model].coefficients for member in pair]
    used = sum(_most_used(member, network, compute) for member, network in zip(pair, networks, strict=True))
    slowdown = min(launching, 1 / (1 - used)) if used < 1 else launching
    found = DATA.predict(profile, pair)
    for member, network, one in zip(pair, networks, found, strict=True):
        batch_ms = [network.exposed_host_ms(size, launching, compute) + slowdown * network.gpu_ms(size, compute)
                    for size in range(1, member.batch + 1)]
        assert one.latency_ms == pytest.approx(max(batch_ms), rel=1e-9)
        assert one.throughput_rps == pytest.approx(1000 * member.processes * member.batch / batch_ms[-1], rel=1e-9)


def small_instance(seed, **policy):
    """Some shipped models at random rates and SLOs that a whole A100 meets at least twice over."""
    draw = np.random.default_rng(seed)
    chosen = draw.choice(MODELS, 2 + seed % 4, replace=False)
    workloads = []
    for model in chosen:
        fastest = min(DATA.operating_points(model, "7g.80gb").latency_ms)
        workloads.append(
            {"name": str(model), "model": str(model), "slo_ms": float(fastest * draw.uniform(6, 30)),
             "rate_rps": float(draw.uniform(5, 400))}
        )
    return provision.Instance(
        version=1, name=f"shared-{seed}", fleet=[{"gpu": "a100-80gb"}], performance="parvagpu-a100",
        workloads=workloads, policy={"share_slices": True} | policy,
    )


@pytest.mark.parametrize("seed", range(1, 3))
def test_mixed_plans_hold_and_need_no_more_than_isolated_ones(seed):
    """A shared plan passes the verifier, is not below the bound, and not above the isolated optimum."""
    instance = small_instance(seed)
    isolated = provision.solve(instance.replace(policy={"share_slices": False}), "master")
    mixed = provision.solve(instance, "master", time_limit_s=2)
    assert mixed.verified
    assert mixed.bound <= mixed.objective <= isolated.objective
    assert mixed.bound <= isolated.bound


def test_sharing_is_refused_where_the_policy_does_not_allow_it():
    """The same shared plan is an unknown operating point as soon as share_slices is off."""
    instance = provision.read("parvagpu-s1-shared")
    plan = provision.solve(instance, "lns", iterations=STEPS).plan
    assert provision.verify(instance, plan).ok
    strict = instance.with_policy(share_slices=False)
    kinds = {violation.kind for violation in provision.verify(strict, plan).violations}
    assert kinds == {"operating_point"}


def test_overloaded_slice_is_rejected():
    """Rates beyond what the processes of a shared slice can do are violations of rate or latency."""
    instance = provision.read("parvagpu-s1-shared")
    plan = provision.solve(instance, "lns", iterations=STEPS).plan
    more = [one.model_copy(update={"rate_rps": one.rate_rps * 1.5}) for one in instance.workloads]
    gpus = tuple(
        gpu.model_copy(update={"slices": tuple(
            piece.model_copy(update={"replicas": tuple(
                replica.model_copy(update={"rate_rps": replica.rate_rps * 1.5}) for replica in piece.replicas)})
            for piece in gpu.slices)})
        for gpu in plan.gpus
    )
    report = provision.verify(instance.replace(workloads=more), plan.model_copy(update={"gpus": gpus}))
    assert {violation.kind for violation in report.violations} & {"rate", "latency"}


def test_slice_that_unfilled_batches_overload_is_rejected():
    """A request alone keeps the slice longer than two together: planned for two, two replicas at a rate that forms
    single ones need 1.2 slices. The verifier refuses them, and in a replay they break their SLO."""
    network = DATA.models["inceptionv3"].coefficients
    slo_ms = 2.002 * (network.exposed_host_ms(2, 2, 1) + 2 * network.gpu_ms(2, 1))
    rate_rps = 0.95 * 2000 / slo_ms
    assert 2 * rate_rps * network.gpu_ms(1, 1) > 1200
    instance = provision.Instance(
        version=1, name="single", fleet=[{"gpu": "a100-80gb"}], performance="parvagpu-a100",
        workloads=[{"name": name, "model": "inceptionv3", "slo_ms": slo_ms, "rate_rps": rate_rps} for name in "ab"],
        policy={"share_slices": True},
    )
    replicas = [{"workload": name, "batch": 2, "processes": 1, "rate_rps": rate_rps} for name in "ab"]
    overloaded = provision.Plan(version=1, instance="single", gpus=[
        {"gpu": "a100-80gb", "mig": True, "slices": [{"profile": "1g.10gb", "start": 0, "replicas": replicas}]}])
    assert {one.kind for one in provision.verify(instance, overloaded).violations} == {"latency"}
    replay = provision.simulate(instance, overloaded, seconds=3, arrival_cv=0)
    assert not any(one.ok for one in replay.workloads)


@pytest.mark.skipif(not PARVAGPU.is_dir(), reason="ParvaGPU's tables are not beside the checkout")
@pytest.mark.parametrize(("row", "gpus"), [(1, 1), (2, 2), (3, 4), (4, 6)])
def test_scenarios_on_measured_tables_with_shared_slices(row, gpus):
    """Sharing slices saves a GPU: measured segments beside networks fitted to them."""
    result = provision.solve(sharing(import_scenario(PARVAGPU, row, 0.9)), "master", time_limit_s=120)
    assert (result.status, result.report.gpus) == ("optimal", gpus)


@pytest.mark.parametrize("name", ["parvagpu-s1-shared", "parvagpu-s4-shared"])
def test_shared_slices_keep_their_slos_when_requests_arrive_evenly(name):
    """Batches fill within half of the SLO, so that the slices are no busier in a replay than the model says."""
    instance = provision.read(name)
    plan = provision.solve(instance, "lns", iterations=STEPS).plan
    report = provision.simulate(instance, plan, seconds=20, arrival_cv=0)
    assert all(one.ok for one in report.workloads)


KINDS = [
    dict(workloads=3),
    dict(limited=True, measured=True),
    dict(fleet=(("a30", False),), measured=True),
    dict(fleet=(("a30", True), ("a30", False))),
    dict(fleet=(("a30", True), ("t4", False)), measured=True),
    dict(mps=False),
]


@pytest.mark.parametrize(("method", "kind", "seeds"), [
    ("auto", 3, (1,)), ("master", 0, (0,)), ("master", 2, (0, 1)), ("master", 4, (0, 1))])
def test_no_plan_of_brute_force_contradicts_a_proof(method, kind, seeds):
    """No bound lies above what brute force finds, and most of its plans are matched."""
    matched = []
    for seed in seeds:
        instance = random_mixed(seed, **KINDS[kind])
        best = solve_small(instance).value
        result = provision.solve(instance, method, time_limit_s=4)
        if best is None:
            continue
        assert result.status != "infeasible"
        assert (result.bound or 0) <= best * (1 + 1e-9)
        matched.append(result.objective is not None and result.objective <= best * (1 + 1e-9))
    assert sum(matched) >= 0.5 * len(matched)


def test_an_idle_workload_stands_on_a_slice_of_another():
    """Two workloads on whole A30s, one of them at rate 0: one GPU, proven."""
    result = provision.solve(random_mixed(2, fleet=(("a30", False),)), "mixed-slices")
    assert (result.status, result.objective) == ("optimal", 1)
    assert any(replica.rate_rps == 0 for _, _, _, replica in result.plan.replicas())


def test_replicas_that_are_asked_for_may_share_slices():
    """min_replicas 2 in the model: proven, verified, and no more GPUs than with segments alone."""
    shared = provision.read("parvagpu-s1-shared")
    shared = shared.replace(workloads=[one.model_copy(update={"min_replicas": 2}) for one in shared.workloads])
    result = provision.solve(shared, "master", time_limit_s=120)
    isolated = provision.solve(shared.replace(policy={"safety": 0.9}), "master")
    assert result.verified
    assert result.bound <= result.report.cost_per_hour <= isolated.objective


def test_the_relaxation_has_the_tolerance_of_the_verifier():
    """A budget that the network meets exactly, and one shorter by less than rounding, are bounded alike."""
    one = DATA.models["resnet50"].coefficients
    budget_ms = one.exposed_host_ms(8, 2, 7) + 2 * one.gpu_ms(8, 7)
    for part in (1, 1 - 5e-10):
        instance = small_instance(0).replace(workloads=[
            {"name": "a", "model": "resnet50", "slo_ms": 2 * budget_ms * part, "rate_rps": 1.0}])
        assert relaxed(instance, best_segments(instance))[0][0, -1, 0] == pytest.approx(8000 / budget_ms, rel=1e-6)


def test_ctrl_c_keeps_the_best_plan_so_far():
    """Interrupted as soon as it has a plan: that plan, verified, below no bound."""
    def stop(incumbent):
        if incumbent.objective is not None:
            raise KeyboardInterrupt

    instance = small_instance(3)
    result = provision.solve(instance, "master", report=stop)
    assert result.verified and result.termination in ("stopped", "proved")
    assert (result.bound or 0) <= result.objective

"""MIG-serving and PARIS: plans hold, scores as worked by hand, the slow algorithm no worse than the fast one."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import random_instance

import provision
from provision.formulations.search.segments import best_segments, partitions_of
from provision.heuristics.rivals import mig_serving as mig_serving_slow
from provision.heuristics.rivals.mig_serving import Configs, needed
from provision.instances.importers.parvagpu import import_scenario
from provision.models.base.clock import present_stop
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload

PARVAGPU = Path(__file__).resolve().parents[4] / "shared" / "data" / "parvagpu"
NAMES = ("mig-serving-fast", "mig-serving-slow", "paris")
A30 = ("1g.6gb", "2g.12gb", "4g.24gb")
QUICK = {"patience": 2, "playouts": 3}


def solved(instance, name, **settings):
    """The result of a method, the slow one cut short."""
    quick = QUICK if name == "mig-serving-slow" else {}
    return provision.solve(instance, name, **quick, **settings)


def made(rates, tables, **policy):
    """An instance on A30s: ``tables`` are, per workload, (profile, batch, requests/s, ms) of single processes."""
    data = MeasuredSegments(
        version=1, name="made", kind="measured-segments", gpu="a30",
        models={name: {"points": [(profile, batch, 1, rps, ms) for profile, batch, rps, ms in table]}
                for name, table in tables.items()},
    )
    return Instance(
        version=1, name="made", fleet=(FleetEntry(gpu="a30"),), performance=data, policy=policy,
        workloads=[Workload(name=name, model=name, slo_ms=100.0, rate_rps=rate) for name, rate in rates.items()],
    )


def by_size(*rates_rps):
    """A table with one batch size and these requests/s on 1g, 2g and 4g."""
    return [(profile, 1, float(rps), 10.0) for profile, rps in zip(A30, rates_rps, strict=True)]


def held(plan):
    """Per GPU, how many instances of each profile every workload has."""
    return [Counter((piece.profile, one.workload) for piece in gpu.slices for one in piece.replicas)
            for gpu in plan.gpus]


@pytest.mark.parametrize("seed", range(40))
def test_plans_hold_and_slow_is_no_worse_than_fast(seed):
    instance = random_instance(
        seed, workloads=1 + seed % 6, gpus=(("a100-80gb",), ("a30",), ("h100-80gb",))[seed % 3], gpus_each=2
    )
    fast, slow, paris = (solved(instance, name, seed=seed) for name in NAMES)
    assert fast.verified and slow.verified and paris.verified
    assert slow.report.gpus <= fast.report.gpus
    assert all(one.processes == 1 for result in (fast, slow, paris) for *_, one in result.plan.replicas())


@pytest.mark.parametrize("name", NAMES)
def test_queueing_headroom_idle_workloads_and_no_mps(name):
    """What policy and fleet may ask beside rates and SLOs."""
    instance = provision.read("parvagpu-s1")
    idle = instance.workloads[0].model_copy(update={"rate_rps": 0.0})
    instance = instance.replace(
        policy=instance.policy.model_copy(update={"latency_budget": "queueing", "headroom": 0.2}),
        workloads=[idle, instance.workloads[1]],
        fleet=[instance.fleet[0].model_copy(update={"mps": False})],
    )
    result = solved(instance, name)
    assert result.verified
    assert idle.name in {one.workload for *_, one in result.plan.replicas()}


def test_fast_follows_the_scores_worked_by_hand():
    """a: 10, 25, 40 and b: 20, 30, 60 requests/s on 1g, 2g, 4g; a asks for 50, b for 60.

    Utilities: a 0.2, 0.5, 0.8; b 1/3, 0.5, 1. The first GPU: four 1g for b score 4/3, more than 1g, 1g, 2g with at
    most 2/3 + 1/2, two 2g with 1 and 4g with 1. Then b needs nothing and a two 2g (1 against 0.8).
    """
    instance = made({"a": 50.0, "b": 60.0}, {"a": by_size(10, 25, 40), "b": by_size(20, 30, 60)})
    configs = Configs(instance, best_segments(instance, 1))
    first = configs.best(np.zeros(2))[0]
    assert configs.given(first) == pytest.approx([0, 4 / 3])
    assert held(provision.solve(instance, "mig-serving-fast").plan) == [{(A30[0], "b"): 4}, {(A30[1], "a"): 2}]


def test_needs_weigh_the_scores():
    """With b complete to 3/4, its four 1g score 1/3 and a's two 2g 1."""
    instance = made({"a": 50.0, "b": 60.0}, {"a": by_size(10, 25, 40), "b": by_size(20, 30, 60)})
    configs = Configs(instance, best_segments(instance, 1))
    assert configs.given(configs.best(np.array([0, 0.75]))[0]) == pytest.approx([1, 0])


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(["a30", "a100-80gb"]))
def test_no_pair_of_workloads_scores_higher(seed, workloads, gpu):
    """The best configuration against all ways to give a partition's instances to two workloads."""
    instance = random_instance(seed, workloads=workloads, gpus=(gpu,))
    segments = best_segments(instance, 1)
    if not segments.throughput_rps.any(axis=1).all():
        return
    configs = Configs(instance, segments)
    completion = np.random.default_rng(seed).uniform(0, 1.1, workloads)
    gains = needed(completion)[:, None] * configs.utility
    best = max(
        sum(max(n * gains[a, kind] + (slots - n) * gains[b, kind] for n in range(slots + 1))
            for kind, slots in enumerate(partition))
        for partition in partitions_of(instance, segments).slots.tolist()
        for a, b in itertools.product(range(workloads), repeat=2)
    )
    found = configs.best(completion, 10)
    scores = [needed(completion) @ configs.given(config) for config in found]
    assert scores[0] == pytest.approx(best)
    assert np.diff(scores).max(initial=0) < 1e-9 and len(set(found)) == len(found)
    assert all(len({workload for _, workload in config}) <= 2 for config in found)


def test_slow_packs_what_fast_does_not_mix():
    """Three workloads that need one 1g each: fast takes a GPU for each, slow one for all."""
    instance = made(dict.fromkeys("abc", 10.0), dict.fromkeys("abc", by_size(10, 11, 12)))
    fast, slow = (provision.solve(instance, name) for name in ("mig-serving-fast", "mig-serving-slow"))
    assert (fast.report.gpus, slow.report.gpus) == (3, 1)


def test_same_seed_same_plan():
    instance = provision.read("parvagpu-s4")
    plans = [solved(instance, "mig-serving-slow", seed=seed).plan for seed in (3, 3, 4)]
    assert plans[0] == plans[1] != plans[2]


def test_slow_tells_of_better_plans_and_keeps_time():
    told = []
    result = solved(provision.read("parvagpu-s5"), "mig-serving-slow", report=told.append)
    values = [news.objective for news in told]
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(result.objective)
    late = provision.solve(provision.read("parvagpu-s5"), "mig-serving-slow", time_limit_s=1e-9)
    assert (late.termination, late.verified, late.objective) == ("time_limit", True, values[0])


def test_a_stop_returns_the_best_plan(monkeypatch):
    search = mig_serving_slow.search

    def stopped(*given):
        present_stop().ask()
        return search(*given)

    monkeypatch.setattr(mig_serving_slow, "search", stopped)
    result = provision.solve(provision.read("parvagpu-s4"), "mig-serving-slow")
    assert (result.status, result.termination, result.verified) == ("feasible", "stopped", True)


def test_paris_follows_the_knees_worked_by_hand():
    """Batches of 1 and 4, half of the queries each: 5 requests in 2 queries; 50 requests/s are 10 + 10 queries/s.

    1g is near its full 10 requests/s at batch 1: it takes the single requests, 10 / 10 = 1 instance. Batches of 4 go to
    2g, whose knee is 4: 40 / 16 = 2.5 instances, rounded up. 4g has its knee at 4 too, and gets nothing.
    """
    table = [("1g.6gb", 1, 10.0, 10.0), ("2g.12gb", 1, 8.0, 10.0), ("2g.12gb", 4, 16.0, 10.0),
             ("4g.24gb", 1, 9.0, 10.0), ("4g.24gb", 4, 30.0, 10.0)]
    instance = made({"a": 50.0}, {"a": table})
    # The median is the smaller batch and the other one far off: half of the mass is at most 1, nearly all at most 4.
    plan = provision.solve(instance, "paris", batch_median=1.0, batch_sigma=0.1).plan
    found = Counter((piece.profile, one.batch) for gpu in plan.gpus for piece in gpu.slices for one in piece.replicas)
    assert found == {("1g.6gb", 1): 1, ("2g.12gb", 4): 3}


def test_paris_passes_a_part_of_an_instance_on_to_the_next_size():
    """Half of the rate: half a 1g is needed, so its requests go to 2g beside 1.25 instances: 5 / 8 more, so two."""
    table = [("1g.6gb", 1, 10.0, 10.0), ("2g.12gb", 1, 8.0, 10.0), ("2g.12gb", 4, 16.0, 10.0)]
    plan = provision.solve(made({"a": 25.0}, {"a": table}), "paris", batch_median=1.0, batch_sigma=0.1).plan
    assert sum(held(plan), Counter()) == {("2g.12gb", "a"): 2}


@pytest.mark.parametrize(("name", "setting"), [
    ("paris", {"batch_sigma": 0}), ("paris", {"largest_batch": "many"}), ("paris", {"batch_median": float("nan")}),
    ("mig-serving-slow", {"patience": "2.5"}), ("mig-serving-slow", {"playouts": -1}),
])
def test_parameters_out_of_range_get_one_clear_line(name, setting):
    with pytest.raises(provision.InputError, match=rf"parameter {next(iter(setting))}: .* should be a .*number from"):
        provision.solve(provision.read("parvagpu-s1"), name, **setting)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_fleet_and_an_unmet_slo_are_told(name):
    instance = provision.read("parvagpu-s1")
    few = instance.replace(fleet=[instance.fleet[0].model_copy(update={"count": 1})])
    result = solved(few, name)
    assert (result.status, result.plan) == ("unknown", None)
    assert "and the fleet has 1" in result.reason
    strict = instance.workloads[0].model_copy(update={"slo_ms": 1.0})
    assert provision.solve(instance.replace(workloads=[strict]), name).status == "infeasible"


def test_paris_refuses_a_model_that_runs_in_larger_batches_only():
    instance = made({"a": 50.0}, {"a": [("1g.6gb", 64, 100.0, 10.0)]})
    with pytest.raises(provision.UnsupportedError, match="cannot serve a in batches of at most 32; raise"):
        provision.solve(instance, "paris")
    assert provision.solve(instance, "paris", largest_batch=64).verified


@pytest.mark.parametrize("name", NAMES)
def test_what_they_cannot_plan_is_refused_with_the_remedy(name):
    with pytest.raises(provision.UnsupportedError, match="use --method auto"):
        provision.solve(random_instance(1, gpus=("v100",)), name)


@pytest.mark.skipif(not PARVAGPU.is_dir(), reason="ParvaGPU's tables are not beside the checkout")
@pytest.mark.parametrize("row", [1, 4, 6])
def test_auto_is_never_worse_on_measured_tables(row):
    """And the fast algorithm is far behind ParvaGPU, the more so at low rates (SC 2024, figure 5)."""
    instance = import_scenario(PARVAGPU, row, 0.9)
    gpus = {name: solved(instance, name).report.gpus for name in (*NAMES, "parvagpu", "auto")}
    assert gpus["auto"] == min(gpus.values())
    assert gpus["mig-serving-fast"] > 1.2 * gpus["parvagpu"]

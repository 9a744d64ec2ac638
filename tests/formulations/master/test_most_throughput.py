"""Most throughput by the master: bounds against brute force and random contents, contents found, plans that verify."""

from functools import cache
from itertools import islice

import numpy as np
import pytest
from combined import random_combination
from combined_checks import answers_of, brute_force, clashes
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.plans import Judge
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import GroupPrices, Member
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import predict_slice


def drawn(seed, share_slices=False):
    """Random combinations whose objective is throughput."""
    for at in range(seed, seed + 10**4):
        one = random_combination(at)
        if one.objective == "max_throughput":
            yield one.replace(policy=one.policy.model_copy(update={"share_slices": share_slices}))


def sharing(seed):
    """Random instances with slices that closed networks share."""
    return (one for one in drawn(seed, share_slices=True) if any(data.kind == "closed-network"
                                                                 for data in one.performance))


@pytest.mark.parametrize("instances", [drawn(0), sharing(0)], ids=["own", "shared"])
def test_no_plan_of_brute_force_beats_a_bound_and_most_are_proven(instances):
    proven = 0
    for instance in islice(instances, 4):
        answers, faults = answers_of(instance, ["master"], 60)
        several = [*answers, brute_force(instance)]
        assert not faults + clashes(instance, several, several)
        proven += any(one.infeasible or objective_of(instance).proved(one.value, one.bound) for one in answers)
    assert proven >= 2


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
@pytest.mark.parametrize(("fleet", "shared"), [("a100-80gb", True), ("v100", False)])
def test_no_content_is_worth_more_than_is_told(fleet, shared, rule):
    """Random contents that hold, of closed networks and under interference, at random prices."""
    problem = Problem(small(fleet, shared, rule))
    draw, judge, known = np.random.default_rng(1), Judge(problem), 0
    oracles = dict(rates_of(problem))
    for kind in draw.choice(list(oracles), 8):
        worth = GroupPrices(1 + draw.exponential(1, 2), draw.normal(0, 300, 2), np.array([np.inf, 500.0]),
                            np.full(2, np.inf))
        (most, patterns), together = oracles[kind].price(worth, 0.0, 0), oracles[kind].together
        rated = [patterns.rated(at) for at in range(len(patterns.rps))]
        tried = [random_pattern(draw, shared) for _ in range(20)]
        for pattern in [*tried, *(one.members for one in rated[:3] if len(one.members) > 1)]:
            found = judge.held(int(kind), pattern)
            if found is not None:
                known += 1
                assert value(worth, found.members, found.rps, together) <= most * (1 + 1e-12)
        assert all(value(worth, *one, together) <= most * (1 + 1e-9) for one in rated)
    assert known >= 8


@settings(max_examples=10)
@given(st.sampled_from([("v100", "half_slo"), ("v100", "queueing"), ("a100-80gb", "queueing")]),
       st.integers(0, 10**6), st.floats(0.3, 1.0))
def test_no_pattern_is_worth_more_than_exact_pricing_says(kind, seed, part):
    """Whatever the floor, the limits on rates that count, and the replicas that have a bonus."""
    (gpu, rule), draw = kind, np.random.default_rng(seed)
    shared = gpu == "a100-80gb"
    problem, several = priced(gpu, shared, rule)
    slice_type, oracle = several[int(draw.integers(len(several)))]
    prices = GroupPrices(1 + draw.exponential(1, 2), draw.normal(0, 100, 2), draw.choice([np.inf, 500.0, 100.0], 2),
                         draw.integers(0, 4, 2))
    judge, floor = Judge(problem), part * oracle.price(prices, 0.0, 0).most
    most, patterns = oracle.price(prices, floor, 0)
    tried = [random_pattern(draw, shared) for _ in range(20)]
    tried += [patterns.rated(at).members for at in range(min(len(patterns.rps), 12))]
    found = [judge.held(slice_type, one) for one in tried]
    least = 2 if shared else 1  # slices of closed networks with one replica are priced elsewhere
    worth = [value(prices, one.members, one.rps, together=True)
             for one in found if one is not None and len(one.members) >= least]
    assert worth and max(worth) <= most * (1 + 1e-6)


def test_equal_workloads_with_a_limited_share_count_one_by_one():
    """Each of two equal workloads may have 60 % of its rate on a GPU, so a GPU may carry more than 60 % of one rate."""
    rows = [{"name": name, "model": "resnet50", "slo_ms": 100.0, "rate_rps": 300.0, "max_share_per_gpu": 0.6}
            for name in "ab"]
    instance = small("v100", False, "half_slo").replace(
        workloads=[provision.Workload(**row) for row in rows], fleet=[provision.FleetEntry(gpu="v100", count=2)])
    found = provision.solve(instance, "master", time_limit_s=20, replay=False)
    assert found.verified and found.objective <= found.bound


def small(fleet, shared, rule):
    """Two workloads on one GPU for most throughput."""
    rows = [{"name": "r", "model": "resnet50", "slo_ms": 100.0, "rate_rps": 100.0},
            {"name": "v", "model": "vgg19", "slo_ms": 150.0, "rate_rps": 50.0}]
    return provision.Instance(version=2, name="small", objective="max_throughput", workloads=rows,
                              fleet=[{"gpu": fleet, "count": 1}], performance=("parvagpu-a100", "igniter-v100"),
                              policy={"latency_budget": rule, "share_slices": shared})


@cache
def priced(fleet, shared, rule):
    """The problem of two workloads, and how its slices are priced."""
    problem = Problem(small(fleet, shared, rule))
    return problem, rates_of(problem)


def random_pattern(draw, shared):
    """Two to four replicas; processes of closed networks, or parts of a GPU in steps of a fortieth."""
    size = int(draw.integers(2, 5))
    parts = draw.multinomial(40 - size, np.ones(size) / size) + 1
    return tuple(Member(int(draw.integers(2)), Running(
        0, int(draw.choice([1, 2, 4, 8, 16, 32])), int(draw.integers(1, 4)) if shared else 1,
        1.0 if shared else round(part / 40, 12))) for part in parts)


def value(worth, members, rps, together=False):
    """The worth of replicas that carry so much. Limits hold for each replica, or for all of a group ``together``."""
    group, rps = np.array([one.group for one in members]), np.array(rps)
    if together:
        totals, number = (np.bincount(group, what, len(worth.per_rps)) for what in (rps, np.ones(len(rps))))
        counted = number if worth.counted is None else np.where(worth.bonus > 0, np.minimum(number, worth.counted),
                                                                number)
        return float((totals + (worth.per_rps - 1) * np.minimum(totals, worth.cap_rps) + counted * worth.bonus).sum())
    each = rps + (worth.per_rps[group] - 1) * np.minimum(rps, worth.cap_rps[group]) + worth.bonus[group]
    return each.sum()


def test_replicas_that_share_a_slice_cannot_all_be_idle_when_throughput_counts():
    """Two replicas on a slice carry what they carry with both busy, however little they are routed."""
    instance = small("a100-80gb", shared=True, rule="half_slo")
    served = instance.replace(objective="min_gpus")
    plan = provision.solve(served, "lns", iterations=1000).plan
    piece = next(one for gpu in plan.gpus for one in gpu.slices)
    two = piece.model_copy(update={"replicas": (piece.replicas[0].model_copy(update={"rate_rps": 1.0}),) * 2})
    idle, busy = (predict_slice(one, "a100-80gb", two)[0] for one in (served, instance))
    assert busy.throughput_rps < idle.throughput_rps


@pytest.mark.parametrize(("fleet", "limits"), [("v100", {"max_replicas": 1}), ("a100-80gb", {"max_replicas": 1})])
def test_one_replica_each_is_proven_where_slices_are_shared(fleet, limits):
    plain = small(fleet, shared=True, rule="half_slo")
    instance = plain.replace(workloads=[one.model_copy(update=limits) for one in plain.workloads],
                             fleet=[plain.fleet[0].model_copy(update={"count": 2})])
    found = provision.solve(instance, "master", time_limit_s=120)
    assert (found.status, found.verified) == ("optimal", True)


def test_contents_are_sought_at_random_prices():
    """The linear program mixes GPUs of one workload each; whole ones carry most where the small demand shares one."""
    instance = small("v100", shared=False, rule="queueing")
    problem = Problem(instance.replace(fleet=[instance.fleet[0].model_copy(update={"count": 2})]))
    fleet, draw = FullFleet(problem, rates_of(problem)), np.random.default_rng(0)
    assert fleet.seek(draw, Deadline(np.inf))
    _, chosen = fleet.chosen(10)
    carried = sum(sum(one.rps) for one in chosen)
    assert 1.3 * fleet.single_rps.sum() < carried <= fleet.bound

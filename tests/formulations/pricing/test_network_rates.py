"""Patterns that carry rates on slices that closed networks share: brute force agrees with the search and its bound."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from provision import read, solve
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.pricing.shared_mig.oracle import network_rates
from provision.formulations.pricing.shared_mig.rate_search import search
from provision.formulations.search.problem import Problem
from provision.models.base.clock import NEVER
from provision.models.performance.catalogue import load_performance
from provision.models.performance.closed_network import network_hold_ms
from provision.models.performance.operating_points import Member
from provision.models.problem.instance import Instance

MODELS = ("resnet50", "mobilenetv2", "vgg19", "inceptionv3", "densenet121", "bert")
MOST, POINTS = 5, 7
OVER_POINTS = ("group", "model", "batch", "processes", "slice_ms", "cycle_ms", "memory_gib", "name", "think_ms",
               "cell_ms", "rps")


def drawn(seed):
    """An oracle with a few of its points and of its processes, its Problem and slice type, and random prices."""
    rng = np.random.default_rng(seed)
    workloads = [{"name": f"w{at}", "model": str(rng.choice(MODELS)), "slo_ms": float(rng.uniform(60, 500)),
                  "rate_rps": float(rng.uniform(10, 800)), "max_replicas": int(rng.integers(1, 4)) or None}
                 for at in range(int(rng.integers(2, 4)))]
    problem = Problem(Instance(version=2, name="drawn", fleet=[{"gpu": "a100-80gb"}], performance="parvagpu-a100",
                               policy={"share_slices": True, "latency_budget": "queueing"}, workloads=workloads))
    shared = problem.shareable[int(rng.integers(len(problem.shareable)))]
    slice_type = problem.segments.slice_types[shared.slice_type]
    oracle = network_rates(problem, slice_type, shared.data, NEVER)
    every = oracle.options
    kept = np.sort(rng.permutation(len(every.group))[:POINTS])
    options = every._replace(**{name: getattr(every, name)[kept] for name in OVER_POINTS})
    oracle.options = options._replace(think_ms=np.ascontiguousarray(options.think_ms[:, :MOST]))
    per_rps = rng.random(len(problem.groups)) / oracle.options.most_rps
    bonus = rng.choice([0.0, 0.1, -0.1], len(problem.groups))
    return oracle, problem, slice_type, shared.data, per_rps, bonus


def brute_force(oracle, problem, slice_type, data):
    """The rates of the replicas of all feasible patterns by the performance model and the latency rule, by the points.
    """
    options, rule, found = oracle.options, problem.instance.shared_rule, {}
    room_gib = problem.instance.fleet[0].type.slice_memory_gib(slice_type.profile)
    for size in range(2, MOST + 1):
        for chosen in combinations_with_replacement(range(len(options.group)), size):
            groups = [problem.groups[options.group[one]] for one in chosen]
            members = [Member(group.models[options.model[one]], int(options.batch[one]), int(options.processes[one]),
                              1.0, partly_filled=True) for one, group in zip(chosen, groups, strict=True)]
            told = data.predict(slice_type.profile, members)
            if sum(one.processes for one in members) > MOST or sum(one.memory_gib for one in told) > room_gib:
                continue
            rates = [float(rule.capacity_rps(member.batch, member.processes, its.latency_ms, its.latency_ms,
                                             group.slo_ms * problem.instance.policy.part_of_slo))
                     for group, member, its in zip(groups, members, told, strict=True)]
            needed = [group.asked_rps * (1 - 1e-9) if group.most == 1 else 0.0 for group in groups]
            if all(rps > 0 and rps >= least for rps, least in zip(rates, needed, strict=True)):
                found[chosen] = np.array(rates)
    return found


def values_of(oracle, problem, every, per_rps, bonus):
    """The values of patterns for least cost: rates count up to those of the workloads."""
    found = {}
    for chosen, rates in every.items():
        group = oracle.options.group[list(chosen)]
        asked = np.array([one.asked_rps for one in problem.groups])
        carried = np.bincount(group, np.minimum(rates, asked[group]), len(asked))
        found[chosen] = float(per_rps @ np.minimum(carried, asked * [len(one.members) for one in problem.groups])
                              + bonus[group].sum())
    return found


@settings(max_examples=12, phases=[Phase.generate])
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_no_pattern_exceeds_the_bound_and_the_best_is_found(seed, part):
    oracle, problem, slice_type, data, per_rps, bonus = drawn(seed)
    every = values_of(oracle, problem, brute_force(oracle, problem, slice_type, data), per_rps, bonus)
    endless = np.full(len(bonus), np.inf)
    best, prices = max([0.0, *every.values()]), GroupPrices(per_rps, bonus, endless, endless)
    for floor, nodes in ((best * part, 10**6), (best * part, 0), (best * part, 20), (best * 1.2, 10**6)):
        members, most = search(oracle.options, prices, floor, nodes)
        assert most >= best * (1 - 1e-9)
        assert not len(members) or tuple(sorted(members.tolist())) in every or most > best
    priced = oracle.price(prices, best * part, 3)
    assert priced.most >= best * (1 - 1e-9)


@settings(max_examples=12, phases=[Phase.generate])
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_no_pattern_exceeds_the_bound_for_most_throughput(seed, part):
    """Requests/s beyond a limit of the group have a lower value, and only some replicas have a bonus."""
    oracle, problem, slice_type, data, per_rps, bonus = drawn(seed)
    draw, groups, every = np.random.default_rng(seed), len(bonus), brute_force(oracle, problem, slice_type, data)
    cap_rps, counted, beyond = draw.exponential(100, groups), draw.integers(0, 3, groups).astype(float), per_rps.min()
    values = {}
    for chosen, rates in every.items():
        group = oracle.options.group[list(chosen)]
        carried, number = np.bincount(group, rates, groups), np.bincount(group, minlength=groups)
        within, paid = np.minimum(carried, cap_rps), np.where(bonus > 0, np.minimum(number, counted), number)
        values[chosen] = float(per_rps @ within + beyond * (carried - within).sum() + paid @ bonus)
    best = max([0.0, *values.values()])
    options = oracle.options._replace(most_rps=cap_rps, total_rps=cap_rps, beyond=beyond)
    for floor, nodes in ((best * part, 10**6), (best * part, 0), (best * part, 20)):
        _, most = search(options, GroupPrices(per_rps, bonus, cap_rps, counted), floor, nodes)
        assert most >= best * (1 - 1e-9)
        assert nodes < 10**6 or best == 0 or part == 1 or most <= best * 1.1


@settings(max_examples=200)
@given(st.integers(0, 10**6))
def test_busy_replicas_never_take_more_than_the_time_of_their_slice(seed):
    """Processes whose batches never take longer than their hold times take no more of the slice's time than all."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    slice_ms, spread = rng.uniform(0.1, 50, size), rng.random(size)
    think_ms = rng.exponential(slice_ms * rng.choice([0.01, 0.3, 3.0]))
    processes = rng.integers(1, 5, size)
    hold_ms = network_hold_ms(think_ms, slice_ms, (think_ms + slice_ms) * spread, processes)
    assert (processes * slice_ms / hold_ms).sum() <= 1 + 1e-9


def test_twelve_gpus_do_not_suffice_for_scenario_five_under_queueing():
    """Scenario 5 of ParvaGPU takes 14 GPUs with own slices; shared slices may save one of them."""
    instance = read("parvagpu-s5-shared").with_policy(latency_budget="queueing")
    found = solve(instance, "auto", time_limit_s=30, gap=0.08, replay=False)
    assert found.bound == pytest.approx(13 * 5.12) and found.verified and found.plan.gpu_count in (13, 14)


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
def test_patterns_carry_rates_under_random_arrivals_alone(rule):
    problem = Problem(read("parvagpu-s1-shared").with_policy(latency_budget=rule))
    shared = problem.shareable[0]
    found = network_rates(problem, problem.segments.slice_types[shared.slice_type], shared.data, NEVER)
    assert found.coarse == (rule == "half_slo")


def test_a_slice_that_is_too_small_for_every_model_has_no_patterns():
    """A slice of 10 GiB, models of 12 GiB each."""
    data = load_performance("parvagpu-a100")
    models = {name: one.model_copy(update={"coefficients": one.coefficients.model_copy(
        update={"memory_fixed_gib": 12.0})}) for name, one in data.models.items()}
    instance = Instance(version=2, name="large", fleet=[{"gpu": "a100-80gb", "count": 2}], objective="max_throughput",
                        performance="parvagpu-a100", policy={"share_slices": True, "latency_budget": "half_slo"},
                        workloads=[{"name": "w", "model": "bert", "slo_ms": 300.0, "rate_rps": 500.0}])
    found = solve(instance.replace(performance=[data.model_copy(update={"models": models})]), time_limit_s=2,
                  replay=False)
    assert found.verified

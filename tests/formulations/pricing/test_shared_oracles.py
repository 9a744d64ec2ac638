"""Oracles of shared slices against the scalar path: what they offer holds, what they bound is not exceeded."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.pricing.oracle import oracle_of
from provision.formulations.pricing.rate_oracles import rate_oracle
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.pricing.shared_mig import oracle as networks
from provision.formulations.search.problem import Problem
from provision.models.base.clock import NEVER
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member
from provision.models.problem.instance import Instance

NETWORK = {"fleet": [{"gpu": "a100-80gb"}], "performance": "parvagpu-a100", "policy": {"share_slices": True}}
RANDOM = {"version": 2, "policy": {"share_slices": True}}
TURNS = {"fleet": [{"gpu": "rtx2080ti"}], "performance": "gpulets-2080ti"}
NETWORK_MODELS = ("resnet50", "mobilenetv2", "vgg19", "inceptionv3", "densenet121", "bert")
TURNS_MODELS = ("lenet", "resnet50", "vgg16", "googlenet", "ssd-mobilenetv1")
ROUNDING = 1e-9
GPU = gpu_type("a100-80gb")


def _problem(data, rest, models):
    """Two or three workloads drawn at random, the first with a variant or without."""
    workloads = []
    for at in range(data.draw(st.integers(2, 3))):
        drawn = data.draw(st.lists(st.sampled_from(models), min_size=1, max_size=2, unique=True))
        workloads.append({"name": f"w{at}", "model": drawn[0], "variants": drawn[1:] if at == 0 else [],
                          "slo_ms": data.draw(st.floats(60, 400)), "rate_rps": data.draw(st.floats(1, 300))})
    return Problem(Instance(**{"version": 1, "name": "drawn", "workloads": workloads} | rest))


def _oracle(problem, data):
    shared = data.draw(st.sampled_from(problem.shareable))
    return problem.segments.slice_types[shared.slice_type].profile, oracle_of(problem, shared)


def _values(problem, data):
    values = data.draw(st.lists(st.integers(0, 1000), min_size=len(problem.roles), max_size=len(problem.roles)))
    return np.array(values)


def _member(problem, role, run, rate_rps, model=None):
    fill_ms = problem.instance.policy.fill_ms(role.slo_ms)
    return Member(model or role.models[run.model], run.batch, run.processes, run.sm_share, rate_rps, run.turn, fill_ms,
                  problem.instance.policy.rule.random_arrivals)


def _holds(problem, profile, roles, members):
    """Whether the verifier's rules hold for replicas on one slice."""
    [performance] = problem.instance.performance
    entry = problem.instance.fleet[0]
    found = performance.predict(profile, members)
    if None in found or sum(member.processes for member in members) > entry.type.slice_mps_clients(profile):
        return False
    held_gib = sum(one.memory_gib for one in found)
    return held_gib <= entry.type.slice_memory_gib(profile) * (1 + ROUNDING) and all(
        _tail_ms(problem, role, member, one) <= role.slo_ms * problem.instance.policy.part_of_slo * (1 + ROUNDING)
        and member.rate_rps <= one.throughput_rps * (1 + ROUNDING)
        for role, member, one in zip(roles, members, found, strict=True))


def _tail_ms(problem, role, member, found):
    """What of a replica must keep its latency budget: the percentile, or the time of a batch."""
    rule, policy = problem.instance.shared_rule, problem.instance.policy
    delay_ms = policy.queue_delay_ms(role.slo_ms, found.latency_ms)
    tail_ms = rule.tail_ms(member.batch, member.processes, found, member.rate_rps, delay_ms)
    return found.latency_ms if tail_ms is None else max(tail_ms, found.latency_ms)


@given(data=st.data())
@settings(max_examples=6)
def test_contents_hold_at_their_rates_and_below(data):
    """Every content that is offered has operating points that hold, whatever part of the rates is routed."""
    _patterns_hold(_problem(data, TURNS, TURNS_MODELS), data)


@given(data=st.data())
@settings(max_examples=2, phases=[Phase.generate])
def test_contents_keep_their_percentiles_under_queueing(data):
    """The same for the percentile of requests; searches there are slower, so that failures are not made smaller."""
    _patterns_hold(_problem(data, TURNS | RANDOM, TURNS_MODELS), data)


def _patterns_hold(problem, data):
    """Check contents that an oracle offers against the scalar path."""
    profile, oracle = _oracle(problem, data)
    values = _values(problem, data)
    found = oracle.price(values, 0)
    for pattern in (*found.patterns[:5], *oracle.seeds()[:2]):
        assert values[list(pattern)].sum() <= found.most or pattern in oracle.seeds()
        roles = [problem.roles[at] for at in pattern]
        runs = oracle.running(pattern)
        assert runs is not None
        for _ in range(3):
            parts = data.draw(st.lists(st.floats(0, 1) | st.just(1.0), min_size=len(roles), max_size=len(roles)))
            alone = len(roles) == 1
            alone &= not problem.instance.policy.rule.random_arrivals
            members = [_member(problem, role, run, 0.0 if alone else role.rate_rps * part)
                       for role, run, part in zip(roles, runs, parts, strict=True)]
            assert _holds(problem, profile, roles, members)


def test_single_requests_that_take_longer_than_a_batch_are_planned_for():
    """Two of a model that takes longer over one request than over two: pairs hold at rates that form single ones."""
    network = load_performance("parvagpu-a100").models["inceptionv3"].coefficients
    budget_ms = 1.001 * (network.exposed_host_ms(2, 2, 1) + 2 * network.gpu_ms(2, 1))
    assert network.gpu_ms(1, 1) > 1.5 * network.gpu_ms(2, 1)
    found = provision.solve(Instance(version=1, name="single", **NETWORK, workloads=[
        {"name": name, "model": "inceptionv3", "slo_ms": 2 * budget_ms, "rate_rps": 950 / budget_ms}
        for name in "ab"]), "greedy", replay=False)
    assert found.verified


@given(data=st.data())
@settings(max_examples=8, phases=[Phase.generate])
def test_no_shared_slice_is_worth_more_than_the_bound(data):
    """Replicas drawn at random, at rates of their roles, that hold by the scalar path are worth no more than told."""
    problem = _problem(data, NETWORK, NETWORK_MODELS)
    for _ in range(8):
        _no_more_than_the_bound(problem, data)


@given(data=st.data())
@settings(max_examples=2, phases=[Phase.generate])
def test_no_shared_slice_is_worth_more_than_the_bound_under_queueing(data):
    """The same for the percentile of requests."""
    problem = _problem(data, NETWORK | RANDOM, NETWORK_MODELS)
    for _ in range(10):
        _no_more_than_the_bound(problem, data)


@given(data=st.data())
@settings(max_examples=4, phases=[Phase.generate])
def test_no_shared_slice_of_many_workloads_is_worth_more_than_the_bound_under_queueing(data):
    """The same with the quick bounds that many workloads get."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "NETWORKS", replace(networks.NETWORKS, searched=0))
        problem = _problem(data, NETWORK | RANDOM, NETWORK_MODELS)
        for _ in range(10):
            _no_more_than_the_bound(problem, data)


def _no_more_than_the_bound(problem, data):
    """Replicas drawn at random against the bound of their slice where they hold: their rates, and a price or a bonus of
    each.
    """
    shared = data.draw(st.sampled_from(problem.shareable))
    oracle, profile = rate_oracle(problem, shared, NEVER), problem.segments.slice_types[shared.slice_type].profile
    members, of_group = [], []
    for _ in range(data.draw(st.integers(2, 4))):
        of_group.append(data.draw(st.integers(0, len(problem.groups) - 1)))
        group = problem.groups[of_group[-1]]
        rate_rps = group.rate_rps * data.draw(st.floats(0.01, 1))
        model, batch = data.draw(st.sampled_from(group.models)), data.draw(st.sampled_from(shared.data.batches[:9]))
        members.append(Member(model, batch, data.draw(st.integers(1, 2)), 1.0, rate_rps, None,
                              problem.instance.policy.fill_ms(group.slo_ms),
                              problem.instance.policy.rule.random_arrivals))
    if _holds(problem, profile, [problem.groups[at] for at in of_group], members):
        asked_rps = np.array([group.asked_rps for group in problem.groups])
        number = np.bincount(of_group, minlength=len(asked_rps))
        rps = np.bincount(of_group, [one.rate_rps for one in members], len(asked_rps))
        per_rps, bonus = (np.array([data.draw(st.floats(low, 1)) for _ in asked_rps]) for low in (0, -1))
        prices = GroupPrices(per_rps / asked_rps, bonus, *np.full((2, len(bonus)), np.inf))
        worth = np.minimum(rps, asked_rps) @ prices.per_rps + number @ bonus
        assert oracle.price(prices, 0.0, 0).most >= worth * (1 - ROUNDING)


@given(data=st.data())
@settings(max_examples=2, phases=[Phase.generate])
def test_no_gpu_in_turns_is_worth_more_than_the_bound_under_queueing(data):
    """Parts drawn at random that keep their percentiles at the rates of their roles are worth no more than told."""
    problem = _problem(data, TURNS | RANDOM, TURNS_MODELS)
    for _ in range(10):
        _no_more_in_turns_than_the_bound(problem, data)


def _no_more_in_turns_than_the_bound(problem, data):
    """Parts drawn at random, at rates of their roles, against the oracle's bound where they hold."""
    _, oracle = _oracle(problem, data)
    [performance] = problem.instance.performance
    split = data.draw(st.sampled_from(performance.splits))
    members, pattern = [], []
    for turn in range(len(split)):
        for _ in range(data.draw(st.integers(1, 2))):
            pattern.append(data.draw(st.integers(0, len(problem.roles) - 1)))
            role = problem.roles[pattern[-1]]
            model, batch = data.draw(st.sampled_from(role.models)), data.draw(st.sampled_from(performance.batches))
            members.append(Member(model, batch, 1, split[turn], role.rate_rps, turn, partly_filled=True))
    counts = np.bincount(pattern, minlength=len(problem.roles))
    if _holds(problem, WHOLE, [problem.roles[at] for at in pattern], members) and (counts <= oracle.copies).all():
        values = _values(problem, data)
        assert oracle.price(values, 0).most >= values[pattern].sum()


@given(data=st.data())
@settings(max_examples=12)
def test_no_gpu_in_turns_is_worth_more_than_the_bound(data):
    """Parts drawn at random are worth no more than told at the roles that their capacities reach."""
    problem = _problem(data, TURNS, TURNS_MODELS)
    _, oracle = _oracle(problem, data)
    [performance] = problem.instance.performance
    split = data.draw(st.sampled_from(performance.splits))
    members, classes = [], []
    for turn in range(len(split)):
        for _ in range(data.draw(st.integers(1, 2))):
            role = data.draw(st.sampled_from(problem.roles))
            model, batch = data.draw(st.sampled_from(role.models)), data.draw(st.sampled_from(performance.batches))
            members.append(Member(model, batch, 1, split[turn], 0.0, turn))
            classes.append(role)
    if not _holds(problem, WHOLE, classes, members):
        return
    values, worth, pattern = _values(problem, data), 0, []
    for role, one in zip(classes, performance.predict(WHOLE, members), strict=True):
        reached = [at for at, other in enumerate(problem.roles) if other.workload_class == role.workload_class
                   and other.rate_rps <= one.throughput_rps]
        pattern.append(max(reached, key=lambda at: values[at]))
        worth += int(values[pattern[-1]])
    if (np.bincount(pattern, minlength=len(values)) <= oracle.copies).all():
        assert oracle.price(values, 0).most >= worth

"""Patterns that carry rates: nothing is worth more than pricing says, and plans of them are proven."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.master.rated import RatedSearch, named, rated_oracles
from provision.formulations.pricing.mps.oracle import InterferencePatterns
from provision.formulations.pricing.mps.rate_points import together_rps
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.search.problem import Problem
from provision.models.base.clock import NEVER
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import carried_rps, predict_slice
from provision.models.problem.search import Search

FLEET = [{"gpu": "v100", "price_per_hour": 3.06}, {"gpu": "t4", "price_per_hour": 0.53}]
A100 = {"gpu": "a100-80gb", "price_per_hour": 5.12}


def mixed(workloads, rule="half_slo", fleet=FLEET, **limits) -> Instance:
    """An instance with (model, SLO in ms, requests/s) of each workload."""
    known = {"v100": "igniter-v100", "t4": "igniter-t4-derived", "a100-80gb": "parvagpu-a100"}
    return Instance.model_validate({
        "version": 1, "name": "mixed", "policy": {"latency_budget": rule}, "fleet": fleet,
        "performance": [known[one["gpu"]] for one in fleet],
        "workloads": [{"name": f"w{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps, **limits}
                      for at, (model, slo_ms, rate_rps) in enumerate(workloads)],
    })


def patterns_of(instance: Instance, gpu: str) -> InterferencePatterns:
    """The patterns of a GPU type."""
    data = next(one for one in instance.performance if one.gpu == gpu)
    return InterferencePatterns(named(Problem(instance)), data)


WORKLOADS = st.lists(st.tuples(st.sampled_from(["resnet50", "vgg19"]), st.integers(40, 150), st.integers(50, 800)),
                     min_size=1, max_size=3, unique=True)


@settings(max_examples=10)
@given(WORKLOADS, st.sampled_from(["half_slo", "queueing"]), st.sampled_from(["v100", "t4"]), st.integers(0, 10**6),
       st.integers(0, 1))
@example([("resnet50", 54, 106), ("vgg19", 69, 219)], "half_slo", "t4", 0, 0)  # a point beaten at all corners only
def test_nothing_is_worth_more_than_pricing_says(workloads, rule, gpu, seed, effort):
    oracle, draw = patterns_of(mixed(workloads, rule), gpu), np.random.default_rng(seed)
    listed, rates = oracle.listed(), np.array([rate for _, _, rate in workloads], float)
    per_rps, bonus = draw.uniform(0, 1, len(rates)) / rates, draw.uniform(-0.1, 0.1, len(rates))
    most, found, *_ = oracle.price(GroupPrices(per_rps, bonus, *np.full((2, len(rates)), np.inf)), 0.0, effort)
    for listing in (listed, found):
        worth = np.minimum(listing.rps, rates * (1 + 1e-8)) @ per_rps + listing.number @ bonus
        assert (worth <= most * (1 + 1e-6) + 1e-5).all()


def test_no_plan_at_the_linear_bound_is_proven():
    workloads = [("vgg19", 134, 104), ("resnet50", 50, 312), ("resnet50", 71, 84)]
    problem = named(Problem(mixed(workloads, fleet=FLEET[1:])))
    rated = RatedSearch(problem, rated_oracles(problem, NEVER), Search(60.0), "master")
    assert all(plan is None or isinstance(plan, Plan) for plan in rated.plans())
    assert rated.best == rated.bound == 2 * problem.dearest


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
def test_listed_pairs_come_near_the_best_of_all_pairs(rule):
    rates = np.array([681.0, 669.0])
    oracle = patterns_of(mixed([("resnet50", 116, 681), ("resnet50", 145, 669)], rule), "t4")
    points, listed = oracle.points, oracle.listed()
    first, second = (np.flatnonzero(points.at.group == group) for group in (0, 1))
    pairs = np.array([(one, two) for one in first
                      for two in second[points.at.units[second] == points.limit - points.at.units[one]]])
    best = (together_rps(points, pairs) / rates).sum(axis=1).max()
    both = (listed.number == 1).all(axis=1)
    assert (listed.rps[both] / rates).sum(axis=1).max() >= 0.98 * best > 0


def test_no_bound_exceeds_the_value_of_all_rates():
    rates = np.array([751.0, 51.0])
    oracle = patterns_of(mixed([("resnet50", 90, 751), ("resnet50", 51, 51)]), "t4")
    most, *_ = oracle.price(GroupPrices(np.array([0.9, 0.1]) / rates, np.zeros(2), *np.full((2, 2), np.inf)), 0.9, 0)
    assert most <= 1 + 1e-5


@settings(max_examples=10)
@given(WORKLOADS, st.sampled_from(["half_slo", "queueing"]), st.sampled_from(["v100", "t4"]), st.integers(0, 10**6))
def test_patterns_carry_what_the_models_say(workloads, rule, gpu, seed):
    instance = mixed(workloads, rule)
    oracle, draw = patterns_of(instance, gpu), np.random.default_rng(seed)
    found = oracle.listed()
    for at in draw.permutation(len(found.rps))[:10]:
        members, rps = found.rated(int(at))
        piece = Slice(profile="whole", replicas=tuple(
            Replica(workload=f"w{one.group}", batch=one.run.batch, processes=1, sm_share=one.run.sm_share, rate_rps=0.0)
            for one in members))
        told = predict_slice(instance, gpu, piece)
        for one, replica, prediction, rate_rps in zip(members, piece.replicas, told, rps, strict=True):
            counts = min(carried_rps(instance, replica, prediction), workloads[one.group][2])
            assert rate_rps == pytest.approx(counts, rel=1e-5)


@pytest.mark.parametrize(("workloads", "fleet", "limits"), [
    ([("vgg19", 145, 158), ("vgg19", 74, 367), ("vgg19", 131, 357), ("vgg19", 43, 615)], [A100, *FLEET], {}),
    ([("resnet50", 60, 300), ("vgg19", 80, 120)], FLEET, {"max_share_per_gpu": 0.6}),
])
def test_small_mixed_fleets_are_proven_and_no_dearer_than_their_parts(workloads, fleet, limits):
    instance = mixed(workloads, fleet=fleet, **limits)
    whole = provision.solve(instance, time_limit_s=20, replay=False)
    assert whole.status == "optimal"
    for one in fleet[-2:]:
        part = provision.solve(mixed(workloads, fleet=[one], **limits), time_limit_s=5, replay=False)
        assert part.objective is None or whole.objective <= part.objective + 1e-9
        assert part.bound is None or part.bound >= whole.bound - 1e-9


def test_a_plan_of_workload_sets_that_mixtures_of_patterns_hide_is_found():
    workloads = [("resnet50", 62, 116), ("resnet50", 91, 791), ("vgg19", 134, 678), ("resnet50", 101, 506),
                 ("resnet50", 46, 408)]
    found = provision.solve(mixed(workloads, fleet=[A100, *FLEET]), time_limit_s=60, replay=False)
    assert (found.status, found.objective) == ("optimal", pytest.approx(5 * 0.53))



def test_a_search_ends_with_a_plan_and_its_proof():
    problem = named(Problem(mixed([("resnet50", 60, 300), ("vgg19", 80, 120)])))
    rated = RatedSearch(problem, rated_oracles(problem, NEVER), Search(20.0), "master")
    assert any(isinstance(one, Plan) for one in rated.plans())
    assert rated.best == rated.bound


def test_alike_workloads_that_need_a_replica_each_are_planned():
    base = provision.read("gpulets-equal")
    workloads = [one.model_copy(update={"name": f"{one.name}-{copy}"}) for copy in range(3) for one in base.workloads]
    fleet = [one.model_copy(update={"count": None}) for one in base.fleet]
    instance = base.replace(workloads=workloads, fleet=fleet).with_policy(latency_budget="queueing")
    found = provision.solve(instance, "master", time_limit_s=5, replay=False)
    assert found.report.ok and 0 < found.bound <= found.objective

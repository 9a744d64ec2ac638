"""Bounds beside exact rates: shared MIG slices in the search by patterns that carry rates."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.master.rated import RatedSearch, named, rated_oracles
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.pricing.shared_mig.oracle import NetworkBounds
from provision.formulations.search.problem import Problem
from provision.models.plans.plan import Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import predict_slice
from provision.models.problem.search import Search

WORKLOADS = [("resnet50", 120, 300), ("vgg19", 140, 200)]
PROFILES = st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])
T4 = {"gpu": "t4", "price_per_hour": 0.53}


def shared(workloads=WORKLOADS, a100_price=1.5, **policy) -> Instance:
    """A100s with MIG slices that may be shared, and T4s; (model, SLO in ms, requests/s) of each workload."""
    return Instance.model_validate({
        "version": 1, "name": "shared", "policy": {"latency_budget": "half_slo", "share_slices": True} | policy,
        "fleet": [{"gpu": "a100-80gb", "price_per_hour": a100_price}, T4],
        "performance": ["parvagpu-a100", "igniter-t4-derived"],
        "workloads": [{"name": f"w{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps}
                      for at, (model, slo_ms, rate_rps) in enumerate(workloads)]})


INSTANCE = shared()


@cache
def bounds_of_slices():
    """By profile of the A100 its NetworkBounds."""
    problem = named(Problem(INSTANCE))
    return {problem.segments.slice_types[at].profile: one for at, one in rated_oracles(problem)
            if isinstance(one, NetworkBounds)}


def priced(profile, per_rps):
    """What pricing finds at prices of a request/s."""
    prices = GroupPrices(np.asarray(per_rps), np.zeros(2), *np.full((2, 2), np.inf))
    return bounds_of_slices()[profile].price(prices, 0.0, 0)


def holds(profile, replicas) -> bool:
    """Whether replicas keep their latency budgets and rates on one slice."""
    told = predict_slice(INSTANCE, "a100-80gb", Slice(profile=profile, replicas=replicas))
    return all(found is not None and found.latency_ms <= INSTANCE.budget_ms(INSTANCE.workload[one.workload])
               and found.throughput_rps >= one.rate_rps for one, found in zip(replicas, told, strict=True))


@settings(max_examples=15)
@given(PROFILES, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.floats(0.02, 0.6),
       st.floats(0.02, 0.6), st.floats(0, 1))
def test_nothing_that_the_models_allow_is_worth_more_than_pricing_says(profile, batch, other, part, rest, weight):
    rates = [part * WORKLOADS[0][2], rest * WORKLOADS[1][2]]
    replicas = tuple(Replica(workload=f"w{at}", batch=size, processes=1, sm_share=1.0, rate_rps=rate_rps)
                     for at, (size, rate_rps) in enumerate(zip([batch, other], rates, strict=True)))
    per_rps = np.array([weight, 1 - weight]) / [one[2] for one in WORKLOADS]
    if holds(profile, replicas):
        assert rates @ per_rps <= priced(profile, per_rps).most * (1 + 1e-9)


@pytest.mark.parametrize("price", [1.5, 5.12])
def test_sharing_slices_costs_no_more_than_not_sharing_them(price):
    instance = shared(a100_price=price)
    found, apart = (provision.solve(one, time_limit_s=3, replay=False)
                    for one in (instance, instance.with_policy(share_slices=False)))
    assert found.verified and found.objective <= apart.objective
    assert found.bound <= apart.bound * (1 + 1e-9)


def test_bounds_of_slices_prove_a_fleet_with_dearer_types():
    """They make no plan; other searches find it."""
    problem = named(Problem(shared(a100_price=5.12)))
    rated = RatedSearch(problem, rated_oracles(problem), Search(20.0), "master")
    assert not any(rated.plans())
    found = provision.solve(problem.instance, time_limit_s=20, replay=False)
    assert found.objective == pytest.approx(found.bound) == pytest.approx(problem.objective(rated.bound))

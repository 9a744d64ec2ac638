"""Mélange: its buckets, its integer program against brute force, and plans that the verifier judges."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_instances import chat, instance

from provision.formulations.search.segments import best_segments
from provision.heuristics.rivals.melange import Pool, Service, allocate, buckets_of, plan
from provision.models.performance.tokens.requests import RequestTokens
from provision.models.problem.search import Search


def test_buckets_keep_the_tokens():
    asked = RequestTokens.model_validate({"input": {"min": 100, "max": 300}, "output": {"mean": 60, "p99": 400}})
    found = buckets_of(asked)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert sum(one.share * one.prompt for one in found) == pytest.approx(200, rel=1e-3)
    assert len({round(one.prompt) for one in found}) == 2  # below and above 256 tokens


@settings(max_examples=12)
@given(st.lists(st.floats(0.05, 3), min_size=4, max_size=4), st.floats(0.5, 4), st.integers(0, 3))
def test_program_is_as_cheap_as_every_deal_tried(loads, price, least):
    """Two buckets of two slices on two pools: 3 x 3 ways to deal them."""
    table, costs = np.array(loads).reshape(2, 2), np.array([1.0, price])
    cheapest = np.inf
    for dealt in product(range(3), repeat=2):
        slices = np.array([[one, 2 - one] for one in dealt])
        servers = np.ceil((slices * table / 2).sum(axis=0) - 1e-6)
        missing = max(least - servers.sum(), 0)
        cheapest = min(cheapest, float(servers @ costs + missing * costs.min()))
    found = allocate([Service(table, least)], [Pool(1.0, 0), Pool(price, 1)], {}, 2, 10)
    assert found is not None and (found.slices[0].sum(axis=1) == 2).all() and found.servers.sum() >= least
    assert float(found.servers[0] @ costs) == pytest.approx(cheapest, rel=1e-3)


def test_limits_bind():
    """One GPU of the cheap entry is left: three quarters of a load that would keep two of them busy go elsewhere."""
    service, pools = Service(np.array([[1.0, 2.0]])), [Pool(10.0, 0), Pool(1.0, 1)]
    assert allocate([service], pools, {1: 2}, 4, 10).servers.tolist() == [[0, 2]]
    found = allocate([service], pools, {1: 1}, 4, 10)
    assert found.servers.tolist() in ([[1, 0]], [[1, 1]])
    assert allocate([Service(np.array([[np.inf, 2.0]]))], pools, {1: 1}, 4, 10) is None
    assert allocate([Service(np.array([[1.0, np.inf]]), least=3)], pools, {}, 4, 10).servers.tolist() == [[3, 0]]


def test_plans_carry_the_mix_or_say_what_they_lack(monkeypatch):
    """Pools are sized for requests of one size; what the GPUs carry less of all sizes mixed stands in the outcome."""
    monkeypatch.setattr("provision.models.performance.tokens.operating.REQUESTS", 2_000)  # rates need not be sharp
    mixed = chat(rate_rps=400.0, tokens={"input": {"histogram": [[64, 3], [2047, 1]]}, "output": {"mean": 21}})
    problem = instance([mixed])
    found = plan(problem, Search(parameters={"slice_factor": 8}))
    carried_rps = len(found.plan.gpus) * best_segments(problem).throughput_rps[0, 0]
    assert (found.status == "feasible") == (carried_rps >= 400 * (1 - 1e-9))
    assert found.status == "feasible" or f"({carried_rps:.4g} of 400 requests/s)" in found.reason
    assert sum(replica.rate_rps for *_, replica in found.plan.replicas()) == pytest.approx(400)

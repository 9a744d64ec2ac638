"""Routing to the fewest requests per weight: as the second verifier's queues, and ties in turns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.simulation.fewest import Servers, by_fewest, one_by_one
from provision.verification.independent.replays.queues import batched, least_loaded


@given(seed=st.integers(0, 10**6), many=st.integers(2, 4))
def test_it_sends_requests_where_the_second_verifier_does(seed, many):
    """Both know the fewest requests per weight; replayed replica by replica, the answers are the same."""
    random = np.random.default_rng(seed)
    batch, processes = random.integers(1, 6, many), random.integers(1, 3, many)
    weight = random.integers(0, 4, many) + (np.arange(many) == 0)
    delay_ms = random.integers(0, 30, many) + 0.25
    hold_ms = np.zeros((many, 7))
    for at in range(many):
        hold_ms[at, 1 : batch[at] + 1] = 5.125 + np.cumsum(random.integers(0, 5, batch[at])) + at / 64
    arrived = np.cumsum(random.integers(1, 12, 400)) + 0.5
    times_ns = np.rint(arrived * 1e6).astype(np.int64)
    owners = by_fewest(times_ns, weight.tolist(), Servers(batch, processes, delay_ms * 1e6, hold_ms * 1e6))
    there = np.flatnonzero(weight)
    ended = least_loaded(arrived, hold_ms[there, 1:], hold_ms[there, 1:], batch[there], processes[there],
                         delay_ms[there], weight[there].astype(float))
    for at in there:
        mine, table = owners == at, hold_ms[at, 1 : batch[at] + 1]
        if mine.any():
            assert batched(arrived[mine], table, table, int(processes[at]), delay_ms[at]) == pytest.approx(ended[mine])
    assert not (weight[owners] == 0).any()


def test_idle_replicas_are_chosen_in_proportion_to_their_weights():
    times_ns = np.arange(1, 401) * 10**9
    parts = [0.75, 0.0, 0.25]
    idle = Servers(np.ones(3, np.int64), np.ones(3, np.int64), np.zeros(3), np.full((3, 2), 1e6))
    assert np.bincount(by_fewest(times_ns, parts, idle), minlength=3).tolist() == [300, 0, 100]
    dealt = np.bincount(by_fewest(times_ns, parts, one_by_one(times_ns, parts)), minlength=3)
    assert dealt[1] == 0 and abs(dealt[0] - 300) < 5


def test_a_replica_with_a_small_part_gets_what_a_router_sends_it():
    """One with a thirtieth of the rate is busy whenever the other one has a request, as behind nginx."""
    points = [["whole", 1, 1, 1000.0, 1.0], ["whole", 8, 1, 4000.0, 2.0]]
    instance = provision.Instance.model_validate({
        "version": 2, "name": "two", "fleet": [{"gpu": "t4"}], "policy": {"routing": "least_loaded"},
        "performance": [{"version": 1, "name": "own", "gpu": "t4", "kind": "measured-segments",
                         "models": {"m": {"points": points}}}],
        "workloads": [{"name": "w", "model": "m", "slo_ms": 20, "rate_rps": 600}]})
    whole = [{"workload": "w", "batch": 8, "rate_rps": 580.0}], [{"workload": "w", "batch": 1, "rate_rps": 20.0}]
    plan = provision.Plan.model_validate({"version": 1, "instance": "two", "gpus": [
        {"gpu": "t4", "mig": False, "slices": [{"profile": "whole", "start": 0, "replicas": one}]} for one in whole]})
    met = {routing: provision.simulate(instance, plan, 20.0, routing=routing).workloads[0]
           for routing in ("random", "least_loaded")}
    assert met["least_loaded"].mean_batch < met["random"].mean_batch  # the small one takes far more than its part
    assert met["least_loaded"].violation_rate == 0

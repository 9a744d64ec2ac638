"""Bursts at later stages of workflows: the sizes that count, what routing leaves of them, and replays of mixtures."""

import bursts as benchmark
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from provision.models.performance.operating_points import Prediction
from provision.models.traffic import turn_rule
from provision.models.traffic.bursts import RARE, grouped, sizes_up_to, steps
from provision.models.traffic.queue_rule import capacity_rps
from provision.models.traffic.queueing import Queueing
from provision.models.traffic.rule import Traffic

REPLICAS = st.tuples(st.integers(1, 33), st.integers(1, 5), st.integers(2, 40))
BUDGET_MS = 100.0


@settings(max_examples=80)
@given(REPLICAS, st.floats(5, 45))
def test_no_size_in_between_is_worse_than_those_that_count(replica, hold_ms):
    batch, processes, burst = replica

    def most_rps(several):
        one = grouped(several, batch, processes)
        return one.size * capacity_rps(Traffic(), one.batch, one.processes, one.rounds * hold_ms,
                                       one.rounds * hold_ms, BUDGET_MS)

    every = most_rps(np.arange(1, burst + 1))
    assert most_rps(sizes_up_to(burst, batch, processes)).min() <= every.min() * (1 + 1e-9)


@settings(max_examples=60)
@given(st.integers(2, 64), st.floats(1, 1000), st.sampled_from([0.05, 0.01, 0.001]))
def test_routing_hardly_ever_sends_more_than_is_counted_on(burst, whole_rps, late):
    known = steps(burst, whole_rps, late)
    assert known[-1] == (burst, np.inf) and known == sorted(known)
    for size, most_rps in known[:-1]:
        # Of the requests that a replica gets, those that come with ``size`` or more others.
        assert binom.sf(size - 1, burst - 1, most_rps / whole_rps) == pytest.approx(RARE * late, rel=1e-6)


@settings(max_examples=40)
@given(REPLICAS, st.floats(4, 48), st.floats(1, 3000))
def test_a_part_of_a_workload_is_carried_better_and_every_answer_agrees(replica, hold_ms, whole_rps):
    batch, processes, burst = replica
    rule, whole = Queueing(Traffic(burst=burst, whole_rps=whole_rps)), Queueing(Traffic(burst=burst))
    rps, less = (float(one.capacity_rps(batch, processes, hold_ms, hold_ms, BUDGET_MS)) for one in (rule, whole))
    alone = float(Queueing().capacity_rps(batch, processes, hold_ms, hold_ms, BUDGET_MS))
    assert less <= rps <= alone
    if not rps:
        return
    room = float(rule.room_ms(batch, rps, 0.0, BUDGET_MS, processes))
    assert room >= hold_ms * (1 - 1e-5)
    assert (np.diff(rule.room_ms(batch, rps * np.linspace(0.1, 1.5, 12), 0.0, BUDGET_MS, processes)) <= 1e-9).all()
    found = Prediction(hold_ms, 1000 * batch * processes / hold_ms, None)
    assert rule.tail_ms(batch, processes, found, rps * (1 - 1e-6), BUDGET_MS - hold_ms) <= BUDGET_MS * (1 + 1e-6)


@settings(max_examples=30)
@given(st.integers(1, 32), st.integers(2, 32), st.floats(1, 3000), st.floats(0, 20))
def test_between_two_bends_no_more_is_carried_than_the_rule_allows(batch, burst, whole_rps, load_ms):
    rule = Queueing(Traffic(burst=burst, whole_rps=whole_rps))
    bent = rule.bends(batch, load_ms, BUDGET_MS)
    if not len(bent.hold_ms):
        return
    at_ms = np.linspace(bent.hold_ms[0], bent.hold_ms[-1], 200)
    between_rps = 1 / np.interp(at_ms, bent.hold_ms, 1 / bent.rps)
    assert (between_rps <= rule.capacity_rps(batch, 1, at_ms, load_ms + at_ms, BUDGET_MS) * (1 + 1e-5)).all()


@settings(max_examples=20)
@given(st.integers(1, 32), st.integers(2, 32), st.floats(1, 500), st.floats(4, 48))
def test_turns_for_bursts_agree_with_the_cycles_that_they_allow(batch, burst, whole_rps, cycle_ms):
    rule = Queueing(Traffic(burst=burst, whole_rps=whole_rps))
    found = Prediction(10.0, 1000 * batch / cycle_ms, None, in_turns=True)
    rps = rule.carried_rps(batch, 1, found, BUDGET_MS)
    if rps:
        assert float(rule.cycle_room_ms(batch, rps, 10.0, BUDGET_MS)) >= cycle_ms * (1 - 1e-6)
        assert rule.tail_ms(batch, 1, found, rps * (1 - 1e-6), 0.0) <= BUDGET_MS * (1 + 1e-6)


@pytest.mark.parametrize("parted", [False, True])
def test_mixtures_of_bursts_are_in_time(parted):
    """Replays of what ``benchmarks/traffic/bursts.py`` replays more of."""
    rng = np.random.default_rng(5)
    several = [found for _ in range(8) if (found := benchmark.case(rng, parted)) is not None]
    assert len(several) > 2
    for replays, _ in several:
        for late in replays:
            assert late.mean() <= 0.01 + 3 * late.std(ddof=1) / len(late) ** 0.5


@pytest.mark.parametrize("batch", [1, 7])
def test_shipped_tables_of_turns_are_those_that_are_computed(batch):
    computed = turn_rule.computed_cycles(batch, turn_rule.SHIPPED_PERCENTILE)
    assert turn_rule.shipped_cycles()[turn_rule.SHIPPED_BATCHES.index(batch)] == pytest.approx(computed)

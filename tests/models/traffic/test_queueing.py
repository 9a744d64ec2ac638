"""The queueing rule: rates, rooms and verdicts say the same, and err to the safe side of replays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.models.base.tolerances import LOOSE, TOLERANCE
from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.queue_rule import least_patience
from provision.models.traffic.queueing import Queueing

RULE = Queueing()


def point(batch, processes, latency_ms, overlap=1.0):
    """An operating point whose batches hold a process for a part of their latency."""
    rps = 1000 * batch * processes / (latency_ms * overlap)
    return OperatingPoints(np.array([batch]), np.array([processes]), np.array([latency_ms]), np.array([rps]))


@given(st.integers(1, 64), st.integers(1, 5), st.floats(1, 50), st.floats(0.5, 1), st.floats(1.05, 8))
def test_the_highest_rate_is_judged_to_hold_and_a_higher_one_not(batch, processes, latency_ms, overlap, budgets):
    only, budget_ms = point(batch, processes, latency_ms, overlap), latency_ms * budgets
    rate_rps = RULE.best_points(only, processes, np.array([budget_ms]))[0, 0]
    found, delay_ms = Prediction(latency_ms, float(only.throughput_rps[0]), None), budget_ms - latency_ms
    assert rate_rps < found.throughput_rps
    if rate_rps > 0:
        assert RULE.tail_ms(batch, processes, found, rate_rps, delay_ms) <= budget_ms * (1 + 1e-9)
    assert RULE.tail_ms(batch, processes, found, rate_rps * 1.01 + 1e-3 * found.throughput_rps, delay_ms) > budget_ms


@given(st.integers(1, 64), st.integers(1, 5), st.floats(1, 50), st.floats(1.05, 8))
def test_planning_leaves_no_more_of_a_rate_than_bounds_allow_for(batch, processes, latency_ms, budgets):
    only, budget_ms = point(batch, processes, latency_ms), latency_ms * budgets * (1 + TOLERANCE)
    rate_rps = RULE.best_points(only, processes, np.array([budget_ms]))[0, 0]
    found = Prediction(latency_ms, float(only.throughput_rps[0]), None)
    beyond = RULE.tail_ms(batch, processes, found, rate_rps * (1 + LOOSE - TOLERANCE), budget_ms - latency_ms)
    assert not rate_rps or beyond > budget_ms


@given(st.integers(1, 32), st.floats(0.5, 400), st.floats(0, 5), st.floats(6, 100), st.floats(1, 1.5))
def test_a_room_shrinks_with_the_rate_and_grows_with_the_budget(batch, rate_rps, load_ms, budget_ms, factor):
    room = RULE.room_ms(batch, rate_rps, load_ms, budget_ms)
    assert 0 <= room <= budget_ms - load_ms
    assert RULE.room_ms(batch, rate_rps * factor, load_ms, budget_ms) <= room * (1 + 1e-9)
    assert RULE.room_ms(batch, rate_rps, load_ms, budget_ms * factor) >= room * (1 - 1e-9)


@given(st.integers(1, 32), st.floats(5, 400), st.floats(0, 2), st.floats(6, 100))
def test_a_batch_that_takes_the_whole_room_is_judged_to_hold(batch, rate_rps, load_ms, budget_ms):
    hold_ms = float(RULE.room_ms(batch, rate_rps, load_ms, budget_ms)) * (1 - 1e-6)
    if hold_ms > 0:
        found = Prediction(hold_ms + load_ms, 1000 * batch / hold_ms, None)
        delay_ms = budget_ms - found.latency_ms
        assert RULE.tail_ms(batch, 1, found, rate_rps, delay_ms) <= budget_ms * (1 + 1e-6)


@pytest.mark.parametrize(("batch", "processes", "overlap"), [(1, 1, 1.0), (8, 2, 0.8), (33, 3, 0.5)])
def test_planned_and_judged_holds_are_throughputs_inverse(batch, processes, overlap):
    """A process is held for batch times processes over throughput: for the rate, and for the patience beside it."""
    only, budget_ms = point(batch, processes, 10.0, overlap), 35.0
    found = Prediction(10.0, float(only.throughput_rps[0]), None)
    rate_rps = RULE.carried_rps(batch, processes, found, budget_ms)
    assert rate_rps == pytest.approx(RULE.best_points(only, processes, np.array([budget_ms]))[0, 0], rel=1e-12)
    needed = least_patience(RULE.traffic, batch, processes, 0.6, budget_ms)
    assert RULE.tail_ms(batch, processes, found, 0.6 * found.throughput_rps, 0.0) == pytest.approx(
        10.0 + needed * 10.0 * overlap, rel=1e-12)


def test_nobody_waits_without_requests():
    assert RULE.tail_ms(8, 1, Prediction(20.0, 400.0, None), 0.0, 30.0) == 20.0
    assert RULE.room_ms(8, 0.0, 5.0, 50.0) == pytest.approx(45.0, rel=2e-6)


@pytest.mark.parametrize("processes", [1, 3])
def test_of_several_points_the_one_with_most_rate_is_chosen(processes):
    columns = zip((1, 5.0), (8, 20.0), (32, 60.0), strict=True)
    batch, latency = map(np.array, columns)
    points = OperatingPoints(batch, np.full(3, processes), latency, 1000 * batch * processes / latency)
    budgets = np.array([6.0, 40.0, 300.0])
    best = RULE.best_points(points, processes, budgets)
    single = [RULE.best_points(point(one, processes, ms), processes, budgets)[:, 0]
              for one, ms in zip(batch.tolist(), latency.tolist(), strict=True)]
    assert best[:, 0] == pytest.approx(np.max(single, axis=0))
    assert RULE.best_points(points, processes - 1, budgets).sum() == 0

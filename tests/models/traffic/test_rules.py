"""Latency rules against arithmetic: half_slo, how long batches fill, turns, and which queue is asked for."""

import numpy as np
import pytest
from late_share import late_share
from scipy.stats import poisson

from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic import queue_rule
from provision.models.traffic.arrivals import Mmpp, Poisson, Renewal
from provision.models.traffic.queue_rule import Batches, Traffic, capacity_rps, least_patience
from provision.models.traffic.queue_tables import Curve
from provision.models.traffic.queueing import Queueing
from provision.models.traffic.rules import HalfSlo
from provision.models.traffic.turn_rule import HIGHEST_LOAD, STEP, cycle_room_ms, most_in_turns_rps, wait_ms

HALF = HalfSlo()
FAST = 1e-6
"""Milliseconds that a batch takes where only filling counts."""


def test_half_of_the_slo_is_for_the_batch():
    assert HALF.part_of_slo == 0.5
    assert (HALF.queue_delay_ms(100, 0.9, 30), HALF.queue_delay_ms(100, 0.9, 60)) == (20, 0)
    assert HALF.capacity_rps(8, 2, 20, [44, 45, 46], 45).tolist() == [800, 800, 0]
    assert HALF.carried_rps(8, 1, Prediction(30, 400, None), 45) == 400
    assert HALF.tail_ms(8, 1, Prediction(30, 400, None), 100, 5) is None


def test_a_batch_is_done_in_time_and_before_the_next_one_is_full():
    """Budget 45 less 5 of loading; 8 requests for each of 2 processes arrive in 32 ms at 500/s."""
    assert HALF.room_ms(8, [0, 100, 500], 5, 45, 2).tolist() == [40, 40, 32]
    assert HALF.cycle_room_ms(8, [0, 100, 500], 20, 45).tolist() == [70, 70, 16]


def test_of_points_in_budget_the_one_of_most_throughput_counts_and_of_equals_the_soonest():
    points = OperatingPoints(np.array([1, 2, 4, 8]), np.array([1, 1, 2, 5]), np.array([5.0, 9.0, 8.0, 20.0]),
                             np.array([100.0, 300.0, 300.0, 900.0]))
    best = HALF.best_points(points, 2, np.array([4.9, 5, 8, 9, 30]))
    assert best.tolist() == [[0, 0, 0, 0], [100, 5, 1, 1], [300, 8, 4, 2], [300, 8, 4, 2], [300, 8, 4, 2]]
    assert HALF.best_points(points, 0, np.array([30.0])).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("batch", [2, 5, 16])
def test_a_batch_fills_when_all_but_its_first_request_have_come(batch):
    """At 100 requests/s the wait ends, but for the share that may be late, when batch - 1 more have arrived."""
    found = Prediction(FAST, 1000 * batch / FAST, None)
    filled_ms = Queueing().tail_ms(batch, 1, found, 100.0, 1e6) - FAST
    assert poisson.cdf(batch - 2, filled_ms / 10) == pytest.approx(0.01, rel=1e-3)
    assert Queueing().tail_ms(batch, 1, found, 100.0, 7.0) == pytest.approx(7.0, rel=1e-3)


def test_a_request_alone_in_its_batch_waits_for_nobody():
    assert Queueing().tail_ms(1, 1, Prediction(FAST, 1000 / FAST, None), 100.0, 1e6) < 1e-3


@pytest.mark.parametrize("arrivals", [Poisson(), Mmpp(high_over_mean=2.0, high_share=0.2, mean_high_s=1.0)])
def test_a_replica_has_no_room_once_loading_has_taken_the_budget(arrivals):
    with np.errstate(all="raise"):
        room = Queueing(Traffic(arrivals)).room_ms(1, [100.0, 100.0, 0.0, 0.0], [45, 50, 50, 30], 45)
    assert room == pytest.approx([0, 0, 0, 15], rel=1e-5)


@pytest.mark.parametrize(("batch", "cycle_ms", "wait"), [(1, 10.0, 25.0), (4, 20.0, 50.0), (32, 8.0, 18.0)])
def test_turns_carry_what_the_clocked_server_bears_and_no_more(batch, cycle_ms, wait):
    """The planned rate is late at most one time in a hundred by the bound; the next load on the grid more often."""
    rate_rps = most_in_turns_rps(99, batch, cycle_ms, wait)
    assert rate_rps < HIGHEST_LOAD * 1000 * batch / cycle_ms
    allowed, per_cycle = wait / cycle_ms, rate_rps * cycle_ms / 1000
    assert late_share(batch, per_cycle, allowed) <= 0.01 < late_share(batch, per_cycle * STEP * 1.0001, allowed)
    assert wait_ms(99, batch, rate_rps, cycle_ms) <= wait < wait_ms(99, batch, rate_rps * 1.001, cycle_ms)
    room_ms = cycle_room_ms(99, batch, rate_rps, wait)
    assert room_ms >= cycle_ms * (1 - 1e-6)
    assert most_in_turns_rps(99, batch, float(room_ms) * (1 - 1e-6), wait) >= rate_rps * (1 - 1e-6)
    assert most_in_turns_rps(99, batch, float(room_ms) * 1.001, wait) < rate_rps


def test_turns_without_time_or_with_too_much_load_carry_nothing():
    assert cycle_room_ms(99, [4, 4], 100.0, [0.0, -1.0]).tolist() == [0, 0]
    assert most_in_turns_rps(99, 4, 10.0, 5.0) == 0
    assert wait_ms(99, 4, 0.999 * 400, 10.0) == np.inf


def test_between_loads_patience_follows_the_inverse_load(monkeypatch):
    """Patience 1 and 3 for loads 0.25 and 0.5: 2 is enough for 1/3; outside, nothing is made up."""
    monkeypatch.setattr(queue_rule, "curve", lambda *_: Curve(np.array([0.25, 0.5]), np.array([1.0, 3.0])))
    carried = capacity_rps(Traffic(), 4, 2, 10.0, 10.0, np.array([19.0, 20.0, 30.0, 40.0, 90.0]))
    assert carried == pytest.approx([0, 200, 800 / 3, 400, 400])
    needed = [least_patience(Traffic(), 4, 2, load, 100.0) for load in (0.1, 0.25, 1 / 3, 0.5, 0.51)]
    assert needed == pytest.approx([1, 1, 2, 3, np.inf])
    room = queue_rule.room_ms(Traffic(), 4, 2, [20.0, 200.0, 800 / 3, 400.0, 800.0], [20.0, 20.0, 30.0, 40.0, 40.0])
    assert room == pytest.approx([10, 10, 10, 10, 5])


def test_cv_and_fixed_share_are_rounded_up_and_bursts_to_powers_of_two(monkeypatch):
    asked = []
    monkeypatch.setattr(queue_rule, "curve", lambda queue, *_: asked.append(queue) or Curve(np.ones(1), np.ones(1)))
    bursts = Mmpp(high_over_mean=2.0, high_share=0.2, mean_high_s=1.0)
    capacity_rps(Traffic(Renewal(cv=1.98), 99.5), 4, 1, 1.0, 1.0, 9.0, Batches(fixed_share=0.3, cv=0.11))
    capacity_rps(Traffic(bursts), 4, 1, 1.0, 1.0, [90.0, 250.0, 240.0])
    first = asked[0]
    assert (first.arrivals.cv, first.percentile, first.fixed_share, first.service_cv) == (2, 99.5, 0.5, 0.15)
    assert [queue.arrivals.mean_high_s for queue in asked[1:]] == [4, 8, 16]

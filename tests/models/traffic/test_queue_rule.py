"""The latency rule's queue: its replay against slow ones, its tables against unseen arrivals, its rooms as a whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_oracle import play

from provision.models.base import kept
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.errors import InputError
from provision.models.traffic import queue_rule, queue_tables
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace
from provision.models.traffic.queue_replays import (
    Queue,
    late_by_part,
    late_shares,
    lateness,
    least_patience,
    queue_delay,
)
from provision.models.traffic.queue_rule import Batches, Traffic, capacity_rps, most_load, room_ms
from provision.models.traffic.queue_tables import HIGH_LOADS, MARGIN, PROCESSES, SHIPPED_SIZES, curve, shipped_turns

TRAFFIC = Traffic()
POINTS = st.tuples(st.integers(1, 300), st.integers(1, 10))


@settings(max_examples=40)
@given(
    st.integers(1, 5), st.integers(1, 3), st.floats(0, 2), st.floats(0, 1), st.floats(0.2, 1.1), st.integers(0, 99)
)
def test_replays_are_those_of_the_slow_oracle(batch, processes, delay, fixed_share, load, seed):
    """The same requests are late as when every event is played by the rules as written."""
    arrivals = np.random.default_rng(seed).exponential(1 / (load * batch * processes), 60).cumsum()
    replica = {"arrivals": arrivals.tolist(), "batch": batch, "processes": processes, "delay": delay, "limit": 10**9}
    answers = play([replica], lambda _busy, _at, size: fixed_share + (1 - fixed_share) * size / batch + 1e-12)[0]
    latencies = np.array([answer - arrival for arrival, answer in sorted(answers)])
    allowed = float(np.median(latencies)) + 1e-5
    found = late_by_part(arrivals, batch, processes, delay, allowed, fixed_share, np.ones(1), 4)
    assert found == pytest.approx([np.mean(part > allowed) for part in latencies.reshape(4, 15)])


@pytest.mark.parametrize(("batch", "processes", "turns", "more"), [
    (1, 1, 2.0, 1.04), (1, 4, 0.5, 1.04), (3, 2, 1.3, 1.04), (7, 1, 1.05, 1.04), (9, 2, 1.05, 1.04), (16, 5, 1.1, 1.04),
    (90, 2, 0.9, 1.04), (200, 3, 1.2, 1.04), (512, 1, 1.3, 1.08),
])
def test_planned_loads_are_safe_and_sharp(batch, processes, turns, more):
    """With unseen arrivals the planned load keeps P99; a little more does not."""
    patience = turns / processes
    load = float(most_load(curve(Queue(), batch, processes), np.array([patience]))[0])
    assert late_shares(Queue(), batch, processes, load, patience, seed=77).mean() <= 0.01
    assert late_shares(Queue(), batch, processes, min(more * load, 0.999), patience, seed=77).mean() > 0.01


@pytest.mark.parametrize(("batch", "processes", "load"), [(1, 1, 0.5), (8, 2, 0.7), (32, 1, 0.2)])
def test_judged_and_planned_percentiles_agree(batch, processes, load):
    """With the least patience as its delay a replica's P99 is a full batch and that patience; a lower load has less."""
    patience = least_patience(Queue(), batch, processes, load)
    near = 0.01 * (1 + patience)
    assert lateness(Queue(), batch, processes, load, patience + near, patience) <= 0
    assert lateness(Queue(), batch, processes, load, patience - near, patience) >= 0
    assert lateness(Queue(), batch, processes, 0.9 * load, patience + near / 2, patience) <= 0


def test_every_load_of_the_table_needs_at_least_the_patience_of_a_smaller_one():
    """Turns rise along every curve, and the table has one for each pair of sizes."""
    turns = shipped_turns()
    assert turns.shape[:2] == (len(SHIPPED_SIZES), len(PROCESSES))
    assert np.isfinite(turns).all()
    assert (np.diff(turns, axis=2) >= 0).all()


@settings(max_examples=100)
@given(POINTS, st.floats(1, 1000), st.floats(0.01, 3), st.floats(1, 3))
def test_rooms_and_capacities_are_inverse_and_monotone(point, budget_ms, load, ratio):
    """A room's capacity is the rate; longer holds carry less, higher rates and shorter budgets leave less room."""
    rate_rps = load * 1000 * point[0] * point[1] / budget_ms
    room = room_ms(TRAFFIC, *point, [rate_rps, 1.1 * rate_rps], budget_ms, ratio)
    assert 0 < room[1] <= room[0] * (1 + 1e-12)
    assert room[0] <= budget_ms / ratio * (1 + 1e-12)
    assert room_ms(TRAFFIC, *point, rate_rps, 0.9 * budget_ms, ratio) <= room[0] * (1 + 1e-12)
    holds_ms = room[0] * np.array([0.5, 0.9, 1 - 1e-9, 1.02])
    carried = capacity_rps(TRAFFIC, *point, holds_ms, ratio * holds_ms, budget_ms)
    assert (np.diff(carried) <= 1e-9 * carried[0]).all()
    assert carried[2] >= rate_rps * (1 - 1e-6)
    assert carried[3] <= rate_rps * (1 + 1e-6)


def test_arrays_are_answered_like_numbers():
    """Different points asked for together; one with a latency beyond its budget carries nothing."""
    batch, processes = np.array([[1], [8], [33]]), np.array([1, 2, 9])
    carried = capacity_rps(TRAFFIC, batch, processes, 10.0, 10.0, 25.0)
    assert carried.shape == (3, 3)
    assert carried[2, 1] == capacity_rps(TRAFFIC, 33, 2, 10.0, 10.0, 25.0)
    assert capacity_rps(TRAFFIC, 8, 1, 30.0, 30.0, 25.0) == 0
    assert capacity_rps(TRAFFIC, 8, 1, 1.0, 1.0, 1e9) == MARGIN * HIGH_LOADS[-1] * 8000


@pytest.mark.parametrize("queue", [
    Queue(Renewal(cv=3.0)), Queue(Poisson(), service_cv=0.5), Queue(Poisson(), percentile=99.9),
    Queue(Mmpp(high_over_mean=1.5, high_share=0.2, mean_high_s=2.0)),
], ids=lambda queue: str(queue)[:60])
def test_harder_queues_need_more_patience_and_get_enough(queue):
    """More than Poisson arrivals with constant times; enough for unseen arrivals."""
    needed = least_patience(queue, 8, 2, 0.6)
    assert needed > 1.1 * least_patience(Queue(), 8, 2, 0.6)
    assert late_shares(queue, 8, 2, 0.6, needed, seed=77).mean() <= queue.late * 1.02


def test_batches_whose_times_vary_start_earlier():
    """A lone request that waits for the delay is answered in time but for half of those that may be late."""
    queue = Queue(service_cv=0.4)
    needed = least_patience(queue, 8, 2, 0.01)
    assert late_shares(queue, 8, 2, 0.01, needed, seed=77).mean() <= 0.0102
    assert 0.8 < needed < 2
    assert queue_delay(queue, needed) < needed
    assert queue_delay(Queue(), needed) == needed


def test_regular_arrivals_and_faster_small_batches_need_less_patience():
    """Erlang arrivals, as round robin leaves them, and batches whose times follow their size."""
    plain = least_patience(Queue(), 8, 2, 0.6)
    assert least_patience(Queue(Renewal(cv=0.5)), 8, 2, 0.6) < plain
    assert least_patience(Queue(POISSON, fixed_share=0.25), 8, 2, 0.6) < plain


def test_bursts_that_last_count_as_the_high_rate_for_ever():
    """With bursts of a million budgets a load whose high rate overloads the replica never keeps the percentile."""
    queue = Queue(Mmpp(high_over_mean=3, high_share=0.2, mean_high_s=1e6))
    assert least_patience(queue, 4, 1, 0.4) == np.inf
    assert least_patience(queue, 4, 1, 0.2) >= least_patience(Queue(), 4, 1, 0.6) * 0.99


def test_a_trace_must_be_long_enough_for_the_percentile(tmp_path):
    """A Poisson trace is about as demanding as Poisson arrivals; a short one is refused in one line."""
    file = tmp_path / "trace.txt"
    file.write_text("\n".join(map(str, np.random.default_rng(5).exponential(1.0, 20_000).cumsum())))
    queue = Queue(Trace(path=str(file)))
    assert least_patience(queue, 8, 2, 0.6) == pytest.approx(least_patience(Queue(), 8, 2, 0.6), rel=0.1)
    with pytest.raises(InputError, match="20000 arrivals are too few for percentile"):
        least_patience(queue._replace(percentile=99.9), 8, 2, 0.6)


def test_variation_and_shares_are_rounded_to_the_safe_side():
    """A cv between steps carries what the next step carries; the default batches are those of the table."""
    asked = capacity_rps(Traffic(Renewal(cv=1.98)), 8, 1, 10.0, 10.0, 40.0)
    assert asked == capacity_rps(Traffic(Renewal(cv=2.0)), 8, 1, 10.0, 10.0, 40.0)
    assert asked < capacity_rps(TRAFFIC, 8, 1, 10.0, 10.0, 40.0, Batches(fixed_share=1.0, cv=0.0))


def test_curves_are_kept_on_disk(tmp_path, monkeypatch):
    """A curve is computed once; another queue has one of its own; without a folder to write to it is computed anew."""
    calls = []
    monkeypatch.setattr(queue_tables, "least_patience", lambda queue, *rest: calls.append(queue) or float(len(calls)))
    for folder, computed in ((tmp_path, [1, 1, 2]), (tmp_path / "file" / "below", [3, 4, 5])):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        for cv, count in zip((1.5, 1.5, 2.5), computed, strict=True):
            queue_tables.computed_turns.cache_clear()
            queue_tables.computed_turns(Queue(Renewal(cv=cv)), 2, 1)
            assert len(calls) == count * len(queue_tables.loads_of(2))
    queue_tables.computed_turns.cache_clear()


@pytest.mark.parametrize("load", [0.0, 5e-324, 1e-6])
def test_loads_below_the_tables_take_the_patience_of_their_first(load):
    known = curve(Queue(), 4, 1)
    assert queue_rule.least_patience(TRAFFIC, 4, 1, load, 100.0) == known.patience[0]


@pytest.mark.parametrize(("arrivals", "batch"), [(Renewal(cv=2.5), 1), (Renewal(cv=2.5), 8), (Renewal(cv=0.5), 4)])
def test_coarse_turns_are_enough_for_any_number_of_processes(arrivals, batch, monkeypatch, tmp_path):
    """Other random numbers, far more requests: no more are late than may be."""
    monkeypatch.setattr(kept, "user_folder", lambda: tmp_path)
    queue = Queue(arrivals)
    turns = queue_tables.coarse_turns.__wrapped__(queue, batch)
    assert (np.diff(turns[np.isfinite(turns)]) >= 0).all()
    for at in range(0, len(turns), 7):
        for processes in (1, 3) if np.isfinite(turns[at]) else ():
            patience = turns[at] / processes
            late = late_shares(queue, batch, processes, queue_tables.loads_of(batch)[at], patience, seed=3)
            assert late.mean() <= queue.late


def test_without_time_curves_are_coarse_until_they_are_refined(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "user_folder", lambda: tmp_path)
    asked, queue = [], Queue(Renewal(cv=1.7))

    def replayed(queue, batch, processes, loads, low_requests, requests, until=NEVER):
        asked.append((len(loads), requests))
        if until.over:
            raise queue_tables._NoTimeError
        return loads * (10 if requests == queue_tables.REQUESTS else 20)

    monkeypatch.setattr(queue_tables, "_replayed_turns", replayed)
    with queue_tables.limited(0.0) as block:
        coarse = curve(queue, 2, 3)
        assert curve(queue, 2, 3) is coarse and list(block.coarse) == [(queue, 2, 3)]
        assert not block.refine(Deadline(0.0)) and block.refine(NEVER)
        assert curve(queue, 2, 3) is coarse
    with queue_tables.limited(0.0) as block:
        fine = curve(queue, 2, 3)
        assert not block.coarse and (fine.patience <= coarse.patience).all()
    with queue_tables.limited(60.0) as block:
        curve(queue, 4, 1)
        assert not block.coarse
    assert max(many for many, _ in asked) == len(fine.loads) and min(many for many, _ in asked) < len(fine.loads)

"""Queueing: the bound on late tasks against replayed arrivals, exact formulas and InSS's equation 2."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.queueing import LATE, MOST_LOAD, VANISHING, p99_ms
from provision.models.traffic.queueing_kernels import late_share, most_load
from provision.models.traffic.queueing_rates import best_by_rate

TASKS = 120_000
POINTS = st.tuples(st.integers(1, 64), st.integers(1, 6), st.floats(0.05, 6))


def arrivals(rate, seed=0):
    """Poisson arrivals, in units of the hold time."""
    return np.random.default_rng(seed).exponential(1 / rate, TASKS).cumsum()


def waits(arrived, batch, processes, delay):
    """Waiting times of all tasks when batches start full or after the delay, event by event; a hold time is 1.

    Also the tasks that stood before each one, and how long the processes were still busy, when it arrived.
    """
    free, head, found = [0.0] * processes, 0, np.empty(len(arrived))
    starts = []
    while head < len(arrived):
        full = arrived[head + batch - 1] if head + batch <= len(arrived) else math.inf
        start = max(heapq.heappop(free), min(full, arrived[head] + delay))
        end = min(head + batch, int(np.searchsorted(arrived, start, side="right")))
        found[head:end] = start - arrived[head:end]
        heapq.heappush(free, start + 1)
        starts.append((start, end))
        head = end
    begun = np.searchsorted([start for start, _ in starts], arrived, side="left")
    taken = np.array([0] + [end for _, end in starts])[begun]
    busy = np.maximum(0, np.array([0.0] + [start + 1 for start, _ in starts])[begun] - arrived)
    return found, np.arange(len(arrived)) - taken, busy


def late(arrived, batch, processes, patience):
    """Share of tasks that wait for longer than the patience, which is the delay."""
    return (waits(arrived, batch, processes, patience)[0] > patience * (1 + 1e-6)).mean()


@pytest.mark.parametrize("turns", [0.8, 1.0, 1.1, 1.4])
@pytest.mark.parametrize(("batch", "processes"), [(3, 1), (16, 1), (4, 2), (32, 2), (1, 3), (8, 3), (4, 5), (64, 4)])
def test_no_more_tasks_are_late_than_the_bound_says(batch, processes, turns):
    """At the highest load allowed, and below it, at most 1 % of the tasks wait for longer than their patience.

    ``turns`` is the patience over the time after which the next of the processes is free when they take turns.
    """
    patience = turns / processes
    load = most_load(batch, processes, patience, LATE, MOST_LOAD)
    assert load > 0
    for part in (1, 0.6):
        assert late(arrivals(part * load * batch * processes), batch, processes, patience) <= LATE * 1.1


@pytest.mark.parametrize(("batch", "processes", "turns"), [(16, 1, 1.1), (8, 2, 1.2), (32, 3, 1.2), (16, 4, 1.5)])
def test_the_bound_is_not_far_off(batch, processes, turns):
    """At 12 % more than the highest load allowed, more than 1 % of the tasks are late."""
    patience = turns / processes
    load = 1.12 * most_load(batch, processes, patience, LATE, MOST_LOAD)
    assert load < 1
    assert late(arrivals(load * batch * processes), batch, processes, patience) > LATE


@pytest.mark.parametrize("patience", [0.01, 0.13, 0.37, 0.6])
def test_what_starts_late_makes_others_late(patience):
    """One process, batches hardly ever full: after each start who arrives within 1 - patience is late, whoever it was.

    So many batches start as tasks come, over the mean size of a batch, which is 1 + rate * patience at least.
    """
    rate = 64 * most_load(64, 1, patience, LATE, MOST_LOAD)
    assert 0.0095 < rate * (1 - patience) / (1 + rate * patience) <= 0.01


@pytest.mark.parametrize("load", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("patience", [0.5, 1.0, 2.5, 4.3])
def test_one_process_without_batching_is_the_textbook_queue(load, patience):
    """With batch 1 and one process the bound is above M/D/1's exact waiting-time distribution (Erlang), by little."""
    terms = ((load * (k - patience)) ** k / math.factorial(k) * math.exp(load * (patience - k))
             for k in range(math.floor(patience) + 1))
    exact = 1 - (1 - load) * sum(terms)
    bound = late_share(load, 1, 1, patience, 1.0)
    assert exact <= bound <= 1.7 * exact / (1 - load)


@pytest.mark.parametrize(("batch", "patience", "load"), [(8, 1.2, 0.6), (16, 1.0, 0.7), (4, 2.4, 0.7), (32, 1.3, 0.9)])
def test_one_process_is_inss_equation_2(batch, patience, load):
    """Task by task, equation 2 calls late who waits too long in the replay; the bound holds for its share.

    W counts the task itself; its wait for a full batch is cut off at the delay.
    """
    arrived = arrivals(load * batch)
    waited, before, busy = waits(arrived, batch, 1, patience)
    queued = before + 1
    fill = np.minimum((batch - queued) / (load * batch), patience)
    latency = np.where(queued >= batch, busy + np.ceil(queued / batch), np.maximum(busy, fill) + 1)
    too_late = latency > 1 + patience * (1 + 1e-6)
    assert np.array_equal(too_late, waited > patience * (1 + 1e-6))
    assert 0 < too_late.mean() <= late_share(load, batch, 1, patience, 1.0) <= 6 * too_late.mean()


@settings(max_examples=60, deadline=None)
@given(POINTS, st.floats(1, 500))
def test_scalar_and_compiled_path_agree(point, hold_ms):
    """P99 is within the budget at the highest load that methods plan, and beyond it just above."""
    batch, processes, patience = point
    load = most_load(batch, processes, patience, LATE, MOST_LOAD)
    found = Prediction(hold_ms, 1000 * batch * processes / hold_ms, None)
    at = [p99_ms(batch, processes, found, part * load * found.throughput_rps, patience * hold_ms) for part in (1, 1.01)]
    assert at[0] <= hold_ms * (1 + patience) * (1 + 1e-9)
    assert at[1] > hold_ms * (1 + patience) * (1 - 1e-9)
    assert load == MOST_LOAD or at[1] > at[0]


@settings(max_examples=60, deadline=None)
@given(POINTS, st.floats(0, 0.97), st.floats(0, 0.97), st.floats(0, 3))
def test_p99_grows_with_the_rate(point, one, other, more):
    """Beyond the delay, when no batch waits to fill, P99 grows with the rate; more patience never carries less."""
    batch, processes, patience = point
    found = Prediction(10.0, 100.0 * batch * processes, None)
    low, high = (p99_ms(batch, processes, found, load * found.throughput_rps, 10 * patience)
                 for load in sorted((one, other)))
    assert 10 <= low <= max(high, 10 + 10 * patience) * (1 + 1e-2)
    loads = [most_load(batch, processes, p, LATE, MOST_LOAD) for p in (patience, patience + more)]
    assert loads[0] <= loads[1] * (1 + 1e-6)


@settings(max_examples=100, deadline=None)
@given(POINTS, st.floats(0.01, MOST_LOAD))
def test_no_tail_is_larger_than_the_bound_that_ends_them(point, load):
    """All that may wait for longer than where the scalar path stops looking together are next to nobody."""
    batch, processes, _ = point
    turns = 1 - VANISHING / (2 * (1 - load) * batch * processes)
    assert late_share(load, batch, processes, turns, 1.0) < 1e-9


@pytest.mark.parametrize("load", [0.0, 0.5, 0.97])
def test_slos_of_years_are_judged_at_once(load):
    """The work does not grow with the SLO: a delay of 1e12 ms has some 1e11 hold times."""
    found = Prediction(10.0, 1600.0, None)
    assert 10 <= p99_ms(8, 2, found, load * 1600, 1e12) <= 10 + 1e12


def test_p99_is_a_quantile_of_the_replay():
    """P99 at a load at which batches fill well before the delay ends is above the replayed one by less than 20 %."""
    found = Prediction(10.0, 4800.0, None)
    p99 = p99_ms(16, 3, found, 0.7 * 4800, 20.0)
    waited, *_ = waits(arrivals(0.7 * 48), 16, 3, 2.0)
    replayed = 10 * (1 + np.quantile(waited, 0.99))
    assert replayed <= p99 < 1.2 * replayed
    assert p99_ms(16, 3, found, 0.99 * 4800, 20.0) == math.inf


def test_best_by_rate_picks_what_carries_most():
    """Every budget gets the point with the highest rate, by trying them all; one below all latencies gets zeros."""
    batch, processes = np.array([1, 4, 16, 4, 16]), np.array([1, 1, 1, 3, 3])
    latency_ms = np.array([5.0, 12.0, 40.0, 25.0, 90.0])
    points = OperatingPoints(batch, processes, latency_ms, 1000 * batch * processes / latency_ms)
    budgets_ms = np.array([4.0, 30.0, 60.0, 110.0, 500.0])
    for budget_ms, found in zip(budgets_ms, best_by_rate(points, 3, budgets_ms), strict=True):
        rates = [
            rps * most_load(int(b), int(p), (budget_ms - ms) / ms, LATE, MOST_LOAD) if ms <= budget_ms else 0.0
            for b, p, ms, rps in zip(batch, processes, latency_ms, points.throughput_rps, strict=True)
        ]
        assert found[0] == pytest.approx(max(rates))
        if found[0]:
            at = int(np.argmax(rates))
            assert tuple(found[1:]) == (latency_ms[at], batch[at], processes[at])
    assert best_by_rate(points, 1, np.array([110.0]))[0, 3] == 1

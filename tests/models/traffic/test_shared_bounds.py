"""Pathwise bounds on shared slices against slices played event by event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_share import late_share

from provision.models.performance.closed_network import network_hold_ms
from provision.models.traffic.turn_rule import after_ticks

TIMES = st.floats(0.05, 10)


def longest_batches(think, work, processes, random, batches=100):
    """Longest batch of every replica when all processes think and work in turn, work shared equally.

    Each batch is drawn between half of its longest times and these; processes pause now and then.
    """
    owner = np.repeat(np.arange(len(processes)), processes)
    left, thinking = random.uniform(0, 3, len(owner)), np.ones(len(owner), bool)
    begun, now, longest = np.full(len(owner), np.nan), 0.0, np.zeros(len(processes))
    for _ in range(batches * len(owner)):
        pace = np.where(thinking, 1.0, 1 / max(1, (~thinking).sum()))
        step = (left / pace).min()
        at = (left / pace).argmin()
        left, now = left - step * pace, now + step
        scale = random.choice([0.5, 1.0])
        if not thinking[at]:
            longest[owner[at]] = max(longest[owner[at]], now - begun[at])
            begun[at] = now if random.random() < 0.8 else np.nan
            thinking[at], left[at] = True, think[owner[at]] * scale if begun[at] == now else random.uniform(0, 5)
        elif np.isnan(begun[at]):
            begun[at], left[at] = now, think[owner[at]] * scale
        else:
            thinking[at], left[at] = False, work[owner[at]] * scale
    return longest


@settings(max_examples=25)
@given(st.lists(st.tuples(TIMES, TIMES, st.integers(1, 3)), min_size=1, max_size=3), st.integers(0, 9))
def test_no_batch_of_a_network_takes_longer_than_its_bound(replicas, seed):
    """Played under processor sharing with smaller batches and pauses; the bound is between alone and Z + P S."""
    think, work, processes = (np.array(column) for column in zip(*replicas, strict=True))
    bound = network_hold_ms(think, work, (think + work) / 2, processes)
    assert (bound >= think + work).all()
    assert (bound <= think + work * processes.sum() + 1e-9).all()
    assert (longest_batches(think, work, processes, np.random.default_rng(seed)) <= bound * (1 + 1e-9)).all()


def test_the_network_bound_is_reached():
    """Two processes that always meet on the slice take twice their work; short visits of others count by their work."""
    assert network_hold_ms(np.zeros(1), np.array([4.0]), np.array([4.0]), np.array([2]))[0] == 8
    beside = network_hold_ms(np.array([0.0, 99.0]), np.array([4.0, 1.0]), np.array([4.0, 100.0]), np.array([1, 1]))
    assert beside == pytest.approx([5.0, 101.0])


def waits_in_turns(arrivals, batch, executions, due, random):
    """Waits at the first member of a ring whose other members have something due at random moments."""
    now, head, waits = 0.0, 0, []
    while head < len(arrivals):
        if arrivals[head] <= now:
            size = 0
            while size < batch and head < len(arrivals) and arrivals[head] <= now:
                waits.append(now - arrivals[head])
                head, size = head + 1, size + 1
            now += executions[0]
        others = [one for one in executions[1:] if random.random() < due]
        now = now + sum(others) if others else max(now, arrivals[min(head, len(arrivals) - 1)])
    return np.array(waits)


@pytest.mark.parametrize("due", [0.7, 1.0])
@pytest.mark.parametrize(("batch", "load", "allowed"), [(2, 0.5, 2.0), (16, 0.8, 1.2), (8, 0.5, 1.0)])
def test_turns_are_never_later_than_the_clocked_bound(batch, load, allowed, due):
    """The share of requests that wait for longer, which is drawn; where all others are always due the bound is near."""
    executions, random = np.array([0.4, 0.3, 0.3]), np.random.default_rng(3)
    arrivals = random.exponential(1 / (load * batch), 60_000).cumsum()
    waits = waits_in_turns(arrivals, batch, executions, due, random)
    bound = late_share(batch, load * batch, allowed / executions.sum())
    late = (waits > allowed * (1 + 1e-9)).mean()
    assert late <= 1.2 * bound and bound < (2 * late if due == 1 else 0.06)


@pytest.mark.parametrize(("batch", "per_cycle"), [(1, 0.5), (8, 6.0), (32, 26.0)])
def test_a_clocked_queue_is_what_its_replay_says(batch, per_cycle):
    """The distribution after ticks, against a replay of the clock."""
    random = np.random.default_rng(4)
    queue = [0]
    for count in random.poisson(per_cycle, 100_000).tolist():
        queue.append(max(queue[-1] + count - batch, 0))
    found = after_ticks(batch, per_cycle)
    assert found.sum() == pytest.approx(1)
    assert found[:3] == pytest.approx(np.bincount(queue, minlength=3)[:3] / len(queue), rel=0.02, abs=0.002)


def test_too_much_load_is_late():
    """Beyond the highest load all count as late, and no time is less than none."""
    assert late_share(4, 4.0, 100.0) == 1.0
    assert late_share(4, 1.0, 0.0) == 1.0

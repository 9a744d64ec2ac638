"""The event loop against closed forms, a slow oracle, and its own rules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_lines import MS, one_row, played, sojourns_ms
from queue_oracle import play
from scipy.stats import t

from provision.models.traffic.arrivals import in_turns
from provision.simulation.kernel import FOREVER, advance, answered
from provision.simulation.latencies import BatchTimes
from provision.simulation.replay import arrivals_ns, process_of


def assert_mean(found, expected):
    """The expected value lies in the 99.9 % confidence interval of the means found, and that is narrow."""
    found = np.array(found)
    half = t.ppf(0.9995, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found))
    assert abs(found.mean() - expected) < half < 0.06 * expected


def queues(load, batch, processes, exponential, count=20, requests=60_000):
    """Sojourn times of several replications of a queue with service times of mean 1 ms and Poisson arrivals."""
    times = one_row([[1.0] * (batch + 1)])
    for seed in range(count):
        random = np.random.default_rng(seed)
        rate = load * batch * processes
        arrivals = arrivals_ns(process_of(1.0), 1000 * rate, requests / (1000 * rate), random) / MS
        factors = [random.exponential(size=len(arrivals))] if exponential else None
        yield sojourns_ms(played(times, [(batch, processes)], [arrivals], factors))[requests // 10 :]


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_mm1(load):
    """M/M/1: sojourn times are exponential with rate mu - lambda."""
    found = list(queues(load, 1, 1, exponential=True))
    assert_mean([one.mean() for one in found], 1 / (1 - load))
    assert_mean([np.quantile(one, 0.99) for one in found], math.log(100) / (1 - load))


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_md1(load):
    """M/D/1: Pollaczek and Khinchine's mean wait."""
    assert_mean([one.mean() for one in queues(load, 1, 1, exponential=False)], 1 + load / (2 * (1 - load)))


def test_mmc():
    """M/M/3: Erlang's C formula."""
    servers, offered = 3, 0.8 * 3
    full = offered**servers / math.factorial(servers) / (1 - 0.8)
    waits = full / (full + sum(offered**k / math.factorial(k) for k in range(servers)))
    found = [one.mean() for one in queues(0.8, 1, servers, exponential=True)]
    assert_mean(found, 1 + waits / (servers - offered))


@pytest.mark.parametrize(("load", "batch"), [(0.5, 2), (0.6, 8), (0.9, 4)])
def test_batch_service(load, batch):
    """M/D^b/1 that takes whatever waits, up to b: the chain of queues at service ends, by Little's law."""
    found = [one.mean() for one in queues(load, batch, 1, exponential=False)]
    assert_mean(found, 1 + _batch_wait(load * batch, batch))


def _batch_wait(rate, batch, states=400):
    """Mean wait in units of the service time: time integral of the queue per cycle over its length."""
    queue = np.arange(states)
    left = np.maximum(np.maximum(queue, 1) - batch, 0)
    chance = np.exp(queue * math.log(rate) - rate - np.array([math.lgamma(k + 1) for k in queue]))
    moves = np.array([np.concatenate([np.zeros(gone), chance[: states - gone]]) for gone in left])
    moves /= moves.sum(axis=1, keepdims=True)
    system = np.vstack([moves.T - np.eye(states), np.ones(states)])
    stationary = np.linalg.lstsq(system, np.append(np.zeros(states), 1), rcond=None)[0]
    integral = stationary @ (left + rate / 2)
    return integral / (1 + stationary[0] / rate) / rate


def test_full_batches_and_timers():
    """A batch starts when full, else when its oldest request has waited long enough, and not before a process is."""
    times = one_row([[0, 5.0, 6.0, 7.0]])
    line = played(times, [(3, 1)], [[0, 1, 2, 4, 20, 31]], delays_ms=[10.0])
    # Full at 2, ends at 9; the fourth has waited 10 at 14, ends at 19; the fifth starts alone at 30 and ends at 35.
    assert sojourns_ms(line) == pytest.approx([9, 8, 7, 15, 15, 15], abs=1e-5)
    assert line.replicas["batches"][0] == 4


def test_arrival_joins_batch_of_its_moment():
    """Of events at one time, batches end first, then requests arrive, then batches start."""
    line = played(one_row([[0, 5.0, 6.0]]), [(2, 1)], [[0, 5, 5, 10]], delays_ms=[0.0])
    assert sojourns_ms(line).tolist() == [5, 6, 6, 6]


def test_busy_neighbour_slows_running_batch():
    """A batch half done when a neighbour starts gets on at the slower speed, and at the faster one again after it."""
    hold = np.zeros((4, 2, 2))
    hold[:, :, 1] = [[0, 0], [0, 4.0], [10.0, 0], [20.0, 6.0]]
    times = BatchTimes(np.array([2, 1]), hold, hold)
    line = played(times, [(1, 1), (1, 1)], [[0], [5]])
    assert sojourns_ms(line, 0).tolist() == [13]
    assert sojourns_ms(line, 1).tolist() == [6]
    line = played(times, [(1, 1), (1, 1)], [[0], [8]])
    # 8 of 10 done alone; the last 2 take 4 beside the neighbour, which has a third left: 4 / 3.
    assert sojourns_ms(line, 0).tolist() == [12]
    assert sojourns_ms(line, 1)[0] == pytest.approx(4 + 4 / 3, abs=1e-5)


def test_processes_think_and_share_the_slice():
    """Batches of 1 ms of thinking and 4 ms of work: on the slice together each gets half of it."""
    hold = np.zeros((9, 4, 2))
    hold[:, :2, 1] = 1.0
    hold[:, 2:, 1] = np.tile(4.0 * np.arange(3), 3)[:, None]
    times = BatchTimes(np.array([3, 3]), hold, hold, 2)
    assert sojourns_ms(played(times, [(1, 1), (1, 1)], [[0], []]), 0).tolist() == [5]
    together = played(times, [(1, 1), (1, 1)], [[0], [0]])
    assert [sojourns_ms(together, at).tolist() for at in (0, 1)] == [[9], [9]]
    later = played(times, [(1, 1), (1, 1)], [[0, 9], [2]])
    assert [sojourns_ms(later, at).tolist() for at in (0, 1)] == [[7, 5], [7]]
    assert later.row[0] == 0


def test_answer_later_than_process_is_free():
    """Requests are answered after the batch latency, while the process takes the next batch after its hold."""
    times = BatchTimes(np.zeros(1, int), np.array([[[0, 4.0]]]), np.array([[[0, 7.0]]]))
    assert sojourns_ms(played(times, [(1, 1)], [[0, 1]])).tolist() == [7, 10]


def test_bounded_queue_drops():
    """Requests beyond the limit are dropped and counted."""
    line = played(one_row([[0, 10.0]]), [(1, 1)], [[0, 1, 2, 3, 12]], queue_limit=1)
    assert line.replicas["dropped"][0] == 2
    assert sojourns_ms(line).tolist() == [10, 19, 18]


def test_stopping_and_going_on_changes_nothing():
    """Playing in parts gives what playing at once gives."""
    arrivals = [np.cumsum(np.random.default_rng(3).exponential(1.0, 500))]
    times = one_row([[0, 1.5, 2.0, 2.5]])
    whole, parts = (played(times, [(3, 1)], arrivals, delays_ms=[1.0], until_ms=end) for end in (None, 0))
    for end in (3.3, 100, 101, 250.5):
        advance(parts, round(end * MS))
    advance(parts, FOREVER)
    assert (whole.done_ns == parts.done_ns).all()


REPLICA = st.fixed_dictionaries({
    "arrivals": st.lists(st.integers(0, 60), max_size=25).map(sorted),
    "batch": st.integers(1, 4),
    "processes": st.integers(1, 3),
    "delay": st.integers(0, 8),
    "limit": st.integers(1, 30),
})


@settings(max_examples=150)
@given(st.lists(REPLICA, min_size=1, max_size=3), st.floats(0, 1))
def test_agrees_with_oracle(replicas, interference):
    """Any slice: the same requests dropped, the same answers to a few nanoseconds, nothing lost."""
    def hold_ms(busy, at, size):
        return (3.03 + at + 1.37 * size) * (1 + interference * (sum(busy) - 1))

    counts = [one["processes"] for one in replicas]
    rows = list(np.ndindex(*(count + 1 for count in counts)))
    hold = np.array([[[hold_ms(busy, at, size) for size in range(5)] for at in range(len(counts))] for busy in rows])
    step = np.array([math.prod(count + 1 for count in counts[at + 1 :]) for at in range(len(counts))])
    # Arrivals off each other's multiples: to the oracle, which counts in floats, equal times may differ.
    replicas = [one | {"arrivals": [1.0137 * ms + 0.01 * k + at * 0.0031 for k, ms in enumerate(one["arrivals"])]}
                for at, one in enumerate(replicas)]
    limit = min(one["limit"] for one in replicas)
    line = played(
        BatchTimes(step, hold, hold), [(one["batch"], one["processes"]) for one in replicas],
        [one["arrivals"] for one in replicas], delays_ms=[one["delay"] for one in replicas], queue_limit=limit,
    )
    for at, found in enumerate(play([one | {"limit": limit} for one in replicas], hold_ms)):
        kept = sorted(pair for pair in found if pair[1] is not None)
        arrival_ns, done_ns = answered(line, at)
        assert line.replicas["dropped"][at] + len(arrival_ns) == len(replicas[at]["arrivals"])
        assert arrival_ns / MS == pytest.approx([arrival for arrival, _ in kept], abs=1e-5)
        assert done_ns / MS == pytest.approx([done for _, done in kept], abs=1e-4)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any), st.integers(0, 2000))
def test_routing_follows_shares(weights, count):
    """At any time every replica has had its share of the requests, to within a few."""
    shares = np.array(weights) / sum(weights)
    owner = in_turns(count, list(shares))
    taken = np.cumsum(owner[:, None] == np.arange(len(shares)), axis=0)
    assert len(owner) == count
    assert (abs(taken - shares * np.arange(1, count + 1)[:, None]) <= 1 + len(shares) / 2).all()
    assert not count or taken[-1][shares == 0].sum() == 0


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
def test_arrivals_have_rate_and_variation(cv):
    """Renewal processes: mean and variation of the gaps, stationary from the start, in order and in time."""
    random = np.random.default_rng(5)
    gaps = np.diff(arrivals_ns(process_of(cv), 1000.0, 200.0, random)) / 1e9
    assert gaps.mean() == pytest.approx(1e-3, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.03)
    assert gaps.min() >= 0
    counts = [len(arrivals_ns(process_of(cv), 10.0, 1.0, random)) for _ in range(3000)]
    assert np.mean(counts) == pytest.approx(10, abs=5 * max(np.std(counts), 0.01) / math.sqrt(3000))

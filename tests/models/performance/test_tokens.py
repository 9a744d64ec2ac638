"""Continuous batching: the replay from event to event against the one that goes iteration by iteration.

Numbers 1 to 5 of the invariants stand in the oracle, which checks them from inside. From outside:

6. Every request is answered, once, and its tokens come in order: sent, first, end.
7. The engine does no more than the oracle's: times and preemptions agree to rounding.
8. With memory for all nobody is preempted.
9. A load that is replayed twice gives the same, and more load never a shorter mean time between tokens.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokens_oracle import serve

from provision.models.base.errors import InputError
from provision.models.fitting.tokens import TYPICAL
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.loads import TokenCounts, TokenDraws, TokenLoad
from provision.models.performance.tokens.operating import figures, replay_load
from provision.models.performance.tokens.records import Clients, Engine, request_table

COUNTS = st.integers(1, 40)


@st.composite
def played(draw):
    """A small engine, clients, and requests that fit it."""
    block = draw(st.sampled_from([1, 2, 4, 16]))
    most = draw(st.integers(1, 8))
    blocks = draw(st.integers(-(-80 // block), -(-240 // block)))
    engine = Engine(draw(st.integers(most, 64)), most, block, blocks, draw(st.booleans()), draw(st.booleans()))
    size = draw(st.integers(1, 25))
    gaps = draw(st.lists(st.floats(0, 60), min_size=size, max_size=size))
    prompt, output = (draw(st.lists(COUNTS, min_size=size, max_size=size)) for _ in range(2))
    clients = Clients(draw(st.integers(1, 12)))
    return np.cumsum(gaps), prompt, output, engine, clients


@settings(max_examples=200)
@given(played(), st.booleans())
@example((np.zeros(5), [1, 1, 4, 1, 1], [1] * 5, Engine(3, 2, 1, 80), Clients(2)), False)  # two are answered at once
def test_agrees_with_iteration_by_iteration(case, cached):
    """Also of requests that come with their KV cache and first token, which nobody times."""
    planned_ms, prompt, output, engine, clients = case
    output = [max(tokens, 1 + cached) for tokens in output]
    expected = serve(planned_ms, prompt, output, engine, TYPICAL, clients, cached)
    table = request_table(planned_ms, np.array(prompt), np.array(output), engine, cached)
    replay(table, engine, TYPICAL, clients, math.inf)
    for column, key in (("sent_ms", "sent"), ("first_ms", "first"), ("end_ms", "end"))[:: 1 + cached]:
        np.testing.assert_allclose(table[column], [one[key] for one in expected], rtol=1e-9)
    assert table["preemptions"].tolist() == [one["preempted"] for one in expected]
    assert (table["sent_ms"] >= planned_ms).all()
    assert cached or ((table["first_ms"] > table["sent_ms"]) & (table["end_ms"] >= table["first_ms"])).all()


@settings(max_examples=150)
@given(played(), st.data())
def test_agrees_where_prompts_begin_alike(case, data):
    """Requests reuse whole blocks of their prompts, some of which nobody holds alone."""
    planned_ms, prompt, output, engine, clients = case
    block = engine.block_tokens
    reused = [data.draw(st.integers(0, (tokens - 1) // block)) * block for tokens in prompt]
    shared = [data.draw(st.integers(0, tokens // block)) for tokens in reused]
    expected = serve(planned_ms, prompt, output, engine, TYPICAL, clients, reused=reused, shared=shared)
    table = request_table(planned_ms, np.array(prompt), np.array(output), engine, reused=np.array(reused),
                          shared_blocks=np.array(shared))
    replay(table, engine, TYPICAL, clients, math.inf)
    for column, key in (("first_ms", "first"), ("end_ms", "end")):
        np.testing.assert_allclose(table[column], [one[key] for one in expected], rtol=1e-9)
    assert table["preemptions"].tolist() == [one["preempted"] for one in expected]


@pytest.mark.parametrize(("prompt", "bound"), [(511, False), (600, True)])
def test_launching_bounds_iterations_with_long_prompts(prompt, bound):
    """Up to 512 tokens servers replay what they recorded; the decoding iterations after it are as ever."""
    slow = TYPICAL._replace(launch=500.0)
    first_ms, end_ms = [], []
    for costs in (TYPICAL, slow):
        expected = serve([0.0], [prompt], [3], Engine(), costs, Clients(1))
        table = request_table(np.zeros(1), np.array([prompt]), np.array([3]), Engine())
        replay(table, Engine(), costs, Clients(1), math.inf)
        assert table["first_ms"][0] == pytest.approx(expected[0]["first"])
        first_ms.append(table["first_ms"][0])
        end_ms.append(table["end_ms"][0] - table["first_ms"][0])
    assert (first_ms[1] > 500) == bound and (first_ms[1] > first_ms[0]) == bound
    assert end_ms[0] == pytest.approx(end_ms[1])


@settings(max_examples=50)
@given(played())
def test_memory_for_all_preempts_nobody(case):
    planned_ms, prompt, output, engine, clients = case
    roomy = engine._replace(kv_blocks=sum(prompt) + sum(output))
    table = request_table(planned_ms, np.array(prompt), np.array(output), roomy)
    replay(table, roomy, TYPICAL, clients, math.inf)
    assert not table["preemptions"].any() and np.isfinite(table["end_ms"]).all()


def load(rate_rps, **changes):
    given = {"arrivals": "constant", "prompt": TokenCounts.uniform(512, 1536), "output": TokenCounts.uniform(128, 384)}
    return TokenLoad(rate_rps=rate_rps, duration_s=60, **given | changes)


def test_more_load_is_slower_and_a_seed_gives_the_same():
    means = [figures(replay_load(load(rate), Engine(kv_blocks=27000), TYPICAL))[1].mean for rate in (1, 5, 10, 15, 20)]
    assert means == sorted(means)
    first, again = (replay_load(load(10, arrivals="poisson"), Engine(kv_blocks=27000), TYPICAL) for _ in range(2))
    assert (first == again).all()


def test_closed_load_keeps_its_clients_busy():
    """With nobody waiting at the server, throughput times latency is the number of clients (Little)."""
    closed = load(None, arrivals="closed", concurrency=16)
    table = replay_load(closed, Engine(kv_blocks=27000), TYPICAL._replace(idle=0.0))
    latency_s = (table["end_ms"] - table["sent_ms"]).mean() / 1000
    assert len(table) / closed.duration_s * latency_s == pytest.approx(16, rel=0.05)


def test_draws_go_on_where_the_run_before_stopped_and_repeat():
    draws = TokenDraws(fewest=10, most=20, seed=42, cycle=7)
    first = draws.sample(20, seed=0)
    assert (first == draws.sample(20, seed=1)).all() and (first[:13] == first[7:]).all()
    assert (draws.model_copy(update={"skipped": 5}).sample(15, seed=0) == first[5:]).all()
    assert first.min() >= 10 and first.max() <= 20
    with pytest.raises(ValueError, match="fewer than"):
        TokenDraws(fewest=20, most=10, seed=42, cycle=7)


@pytest.mark.parametrize(
    ("prompt", "engine", "says"),
    [
        (0, Engine(), "at least one token"),
        (1000, Engine(kv_blocks=10), "does not fit the KV memory of 160 tokens"),
        (10, Engine(budget_tokens=64), "1024 sequences need more than the 64 tokens"),
    ],
)
def test_refuses(prompt, engine, says):
    with pytest.raises(InputError, match=says):
        request_table(np.zeros(1), np.array([prompt]), np.ones(1, int), engine)

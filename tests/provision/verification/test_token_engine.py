"""The verifier's own continuous batching against the rule that can be read, and what it says of rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_instances import chat, instance, performance
from tokens_oracle import serve

from provision import solve, verify
from provision.models.fitting.tokens import TYPICAL
from provision.models.performance.tokens.records import Clients, Engine
from provision.verification.token_engine import _serve, _taken_in

AT_ONCE = TYPICAL._replace(request=0.0, read=0.0, idle=0.0, delivery=0.0, experts=6.0, active=0.1)
WEIGHTS = np.array([getattr(AT_ONCE, name) for name in (
    "step", "weights", "token", "several", "sequence", "context", "prefill", "attended", "delivery_sequence", "experts",
    "active", "launch")])
COUNTS = st.integers(1, 40)


@settings(max_examples=150)
@given(st.data())
def test_agrees_with_iteration_by_iteration(data):
    """Small engines, short of memory and sequences, so that some are sent back."""
    block, most = data.draw(st.sampled_from([1, 2, 4, 16])), data.draw(st.integers(1, 8))
    budget, blocks = data.draw(st.integers(most, 64)), data.draw(st.integers(-(-80 // block), 240 // block))
    engine = Engine(budget, most, block, blocks, data.draw(st.booleans()), data.draw(st.booleans()))
    size = data.draw(st.integers(1, 25))
    ready_ms = np.cumsum(data.draw(st.lists(st.floats(0, 60), min_size=size, max_size=size)))
    prompt, output = (data.draw(st.lists(COUNTS, min_size=size, max_size=size)) for _ in range(2))
    cached = data.draw(st.booleans())
    output = [max(tokens, 1 + cached) for tokens in output]
    known = [0 if cached else data.draw(st.integers(0, (tokens - 1) // block)) * block for tokens in prompt]
    common = [data.draw(st.integers(0, tokens // block)) for tokens in known]
    expected = serve(ready_ms, prompt, output, engine, AT_ONCE, Clients(10**9), cached, known, common)
    given_tokens = (np.array(one) for one in (prompt, output, known, common))
    first_ms, end_ms = _serve(ready_ms, *given_tokens, np.array(engine), WEIGHTS, cached)
    if not cached:
        np.testing.assert_allclose(first_ms, [one["first"] for one in expected], rtol=1e-9)
    np.testing.assert_allclose(end_ms, [one["end"] for one in expected], rtol=1e-9)


def test_launching_bounds_iterations_with_long_prompts():
    none, sizes = np.zeros(2, int), np.array([8192, 8, 16, 1000, 0, 0])
    slow = np.array([*WEIGHTS[:-1], 500.0])
    first_ms, end_ms = _serve(np.array([0.0, 5000.0]), np.array([600, 500]), np.array([3, 3]), none, none, sizes, slow,
                              False)
    assert first_ms[0] == pytest.approx(500, abs=1) and first_ms[1] < 5100 and end_ms[0] < 600


def test_requests_are_taken_in_one_after_another():
    taken_ms = _taken_in(np.array([0.0, 1.0, 10.0, 10.0]), np.array([3.0, 3.0, 2.0, 4.0]))
    assert taken_ms.tolist() == [3.0, 6.0, 12.0, 16.0]


@pytest.fixture(scope="module")
def planned():
    """An instance and its plan."""
    problem = instance([chat(rate_rps=250.0)])
    return problem, solve(problem, "greedy").plan


def changed(plan, **changes):
    """The plan with every replica changed; ``times`` scales what is routed to it."""
    times = changes.pop("times", 1.0)
    gpus = [gpu.model_copy(update={"slices": tuple(piece.model_copy(update={"replicas": tuple(
        one.model_copy(update={"rate_rps": one.rate_rps * times} | changes) for one in piece.replicas
    )}) for piece in gpu.slices)}) for gpu in plan.gpus]
    return plan.model_copy(update={"gpus": tuple(gpus)})


def test_holds_up_to_the_rates_that_were_planned(planned):
    problem, plan = planned
    assert verify(problem, plan).ok
    report = verify(problem, changed(plan, times=1.5))
    broken = [one for one in report.violations if one.kind == "latency"]
    assert broken and all(one.value > one.limit and "P99 of the time" in one.message for one in broken)


def test_too_little_is_a_rate_and_another_batch_unknown(planned):
    problem, plan = planned
    assert {one.kind for one in verify(problem, changed(plan, times=0.5)).violations} == {"rate"}
    assert {one.kind for one in verify(problem, changed(plan, batch=7)).violations} == {"operating_point"}


def test_requests_beyond_the_memory_are_unknown(planned):
    problem, plan = planned
    tight = instance(problem.workloads, files=[performance("h100-80gb", whole=(359, 1.0))])
    [violation] = {one.message.split(": ", 1)[1] for one in verify(tight, plan).violations}
    assert "requests of up to 360 tokens" in violation


def test_a_longer_replay_of_a_hostile_trace_breaks_what_poisson_keeps(planned):
    problem, plan = planned
    bursts = problem.replace(policy={"arrivals": {"process": "renewal", "cv": 6.0}})
    assert not verify(bursts, plan).ok


def test_the_latency_shown_is_that_of_whole_answers(planned):
    _, plan = planned
    report = verify(instance([chat(rate_rps=250.0, slo={"e2e_ms": 1.0})]), plan)
    assert all("P99 of the time of the whole answer" in one.message for one in report.violations)
    assert {one.p99_ms for one in report.predictions} == {one.value for one in report.violations} != set()

"""Prompts that begin alike: plans with prefix caching, kept by both verifiers and by replays."""

import pytest
from token_instances import CHAT, chat, instance, performance

from provision import simulate, solve, verify
from provision.formulations.search.segments import best_segments
from provision.instances.files.files import validate
from provision.models.base.errors import InputError
from provision.models.performance.tokens.requests import RequestTokens, SharedPrefix
from provision.verification.second import second_opinion

LONG = {"input": {"min": 1100.0, "max": 1300.0}, "output": {"min": 20.0, "max": 60.0}}
SYSTEM_PROMPTS = {"tokens": 1024, "distinct": 5}


def carried_rps(shared_prefix, **slices):
    tokens = LONG | ({"shared_prefix": shared_prefix} if shared_prefix else {})
    files = [performance("h100-80gb", **(slices or {"whole": (60_000, 1.0)}))]
    return float(best_segments(instance([chat(tokens=tokens)], files=files)).throughput_rps[0, 0])


def test_what_need_not_be_computed_leaves_room_for_more():
    rates = [carried_rps(one) for one in (None, {"share": 0.3}, {"share": 0.8}, SYSTEM_PROMPTS)]
    assert rates == sorted(rates) and rates[0] * 1.5 < rates[-1]


def test_prefixes_stand_in_memory_once():
    """With memory for three whole requests, prefixes in common leave room for many; a share of each does not."""
    tight = {"whole": (5_000, 1.0)}
    assert carried_rps({"tokens": 1024}, **tight) > 1.5 * carried_rps({"share": 0.85}, **tight)


@pytest.mark.parametrize("prefix", [SYSTEM_PROMPTS, {"share": 0.3}])
def test_a_plan_is_kept_by_both_verifiers_and_a_replay(prefix):
    problem = instance([chat(tokens=LONG | {"shared_prefix": prefix}, rate_rps=200.0)], policy={"headroom": 0.0})
    found = solve(problem)
    assert found.status == "optimal" and found.verified and not found.replay.late
    assert verify(problem, found.plan).ok and simulate(problem, found.plan, 60, seed=5).ok
    second = second_opinion(problem, found.plan)
    assert not second.faults and "violated" not in {replay.late.verdict for replay in second.replays}
    without = instance([chat(tokens=LONG, rate_rps=200.0)], policy={"headroom": 0.0})
    assert not verify(without, found.plan).ok


def test_separate_pools_reuse_prefixes_where_prompts_are_computed():
    tokens = LONG | {"disaggregated": True}
    rates = []
    for one in (tokens, tokens | {"shared_prefix": SYSTEM_PROMPTS}):
        problem = instance([chat(tokens=one)])
        rates.append(best_segments(problem).throughput_rps[:, 0])
        assert problem.workload["chat-decode"].tokens.shared_prefix is None
    assert rates[1][0] > 1.5 * rates[0][0] and rates[1][1] == rates[0][1]


def test_prefixes_beyond_the_memory_are_refused():
    tokens = LONG | {"shared_prefix": {"tokens": 1024, "distinct": 60}}
    found = solve(instance([chat(tokens=tokens)], files=[performance("h100-80gb", whole=(50_000, 1.0))]))
    assert found.plan is None and "shared prefixes and its longest request take 61776 tokens" in found.reason


def test_reused_are_whole_blocks_and_never_a_whole_prompt():
    prompt = instance([chat(tokens=CHAT)]).workloads[0].tokens.input.counts.sample(50, 0)
    for prefix in (SharedPrefix(tokens=150.0), SharedPrefix(share=0.99)):
        reused = prefix.reused(prompt, 16)
        assert (reused % 16 == 0).all() and (reused < prompt).all() and reused.max() > 100
    assert SharedPrefix(tokens=150.0, distinct=3).set_aside(16) == 27


@pytest.mark.parametrize(("prefix", "says"), [
    ({}, "by tokens or by share"),
    ({"tokens": 10, "share": 0.1}, "by tokens or by share"),
    ({"share": 0.1, "distinct": 2}, "leave it out beside share"),
    ({"share": 1.0}, "less than 1"),
])
def test_refuses(prefix, says):
    with pytest.raises(InputError, match=says):
        validate(RequestTokens, CHAT | {"shared_prefix": prefix}, "instance.yaml")

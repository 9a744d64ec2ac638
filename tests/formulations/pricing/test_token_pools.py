"""Language models with a prefill and a decode pool: two workloads, proven against brute force, kept by replays."""

import pytest
from token_instances import CHAT, LIMITS, chat, instance

from provision import simulate, solve, verify
from provision.exporters.pods import environment
from provision.formulations.search.segments import best_segments
from provision.solving.replayed import tightened

LONG = {"input": {"mean": 600.0}, "output": {"min": 10.0, "max": 60.0}}
OWNED = [{"gpu": "h100-80gb", "price_per_hour": 1.0, "count": 2, "mig": False},
         {"gpu": "h100-80gb", "price_per_hour": 4.0, "mig": False}]


def pooled(transfer=True, tokens=CHAT, **changes):
    """A workload with two pools."""
    return chat(tokens=tokens | {"disaggregated": transfer}, **changes)


@pytest.fixture(scope="module")
def planned():
    """An instance with two pools and its plan."""
    problem = instance([pooled({"kv_kib_per_token": 0.0}, LONG, rate_rps=150.0)])
    return problem, solve(problem)


def test_two_workloads_and_a_workflow_share_the_limits():
    problem = instance([pooled({"gb_per_s": 50.0, "kv_kib_per_token": 128.0}, slo=LIMITS | {"e2e_ms": 900.0}),
                        chat("other")])
    first, _, second = problem.workloads
    assert [one.name for one in problem.workloads] == ["chat-prefill", "other", "chat-decode"]
    assert first.tokens.output.most == 1 and first.tokens.transfer_ms_per_token == pytest.approx(0.00262144)
    assert (first.slo.ttft_ms, first.slo_ms, second.slo.tpot_ms, second.slo_ms) == (300.0, 300.0, 20.0, 600.0)
    assert first.slo.percentile == second.slo.percentile == 99.5  # late in one of the stages: 1 % at most
    [flow] = problem.workflows
    assert (flow.name, flow.percentile, problem.workflow_slo_ms(flow)) == ("chat", 99.0, 900.0)
    again = problem.model_dump(mode="json", exclude={"performance"})
    assert type(problem)(**again, performance=problem.performance) == problem


def test_limits_on_tokens_alone_are_those_of_the_stages():
    problem = instance([pooled(percentile=95.0)])
    first, second = problem.workloads
    assert first.slo.percentile == second.slo.percentile == problem.workflows[0].percentile == 95.0
    assert second.slo_ms == pytest.approx(20.0 * 59)


def test_proven_optimum_is_that_of_brute_force():
    """All numbers of replicas of both pools tried; two GPUs are owned and cheap, whichever pool takes them."""
    problem = instance([pooled({"kv_kib_per_token": 0.0}, LONG, rate_rps=150.0)], OWNED)
    each_rps = best_segments(problem).throughput_rps[:, 0]
    expected = min(min(first + second, 2) + 4 * max(first + second - 2, 0)
                   for first in range(1, 9) for second in range(1, 9)
                   if min(first * each_rps[0], second * each_rps[1]) >= 150 * (1 - 1e-9))
    found = solve(problem, "master", replay=False)
    assert (found.status, found.objective, found.bound) == ("optimal", pytest.approx(expected), pytest.approx(expected))


def test_a_plan_keeps_all_limits_in_a_replay_through_both_pools(planned):
    problem, found = planned
    assert found.status == "optimal" and not found.replay.late and verify(problem, found.plan).ok
    report = simulate(problem, found.plan, 100, seed=11)
    times = {one.workload: one for one in report.timed}
    assert report.ok and set(times) == {
        "chat-prefill", "chat-decode", "chat", "chat-prefill: TTFT", "chat-decode: TPOT"}
    assert times["chat"].arrived == times["chat-prefill"].arrived == times["chat-decode"].arrived
    assert times["chat"].p99.mean_ms > max(times["chat-prefill"].p99.mean_ms, times["chat-decode"].p99.mean_ms)


def test_a_repair_shortens_the_limits_of_the_pool_that_was_late(planned):
    problem, _ = planned
    first, second = tightened(problem, {"chat-decode: TPOT": 1.4}).workloads
    assert (first.slo.ttft_ms, second.slo.tpot_ms) == (300.0, pytest.approx(20.0 * 0.98 / 1.4))
    first, second = tightened(problem, {"chat": 1.4}).workloads
    assert (first.slo.ttft_ms, second.slo.tpot_ms) == pytest.approx((300.0 * 0.7, 20.0 * 0.7))


def test_servers_are_told_their_pool(planned):
    problem, found = planned
    told = {replica.workload: {one["name"]: one["value"] for one in environment(problem, piece, replica)}
            for _, _, piece, replica in found.plan.replicas()}
    assert {name: one["PROVISION_POOL"] for name, one in told.items()} == {
        "chat-prefill": "prefill", "chat-decode": "decode"}


def test_first_tokens_wait_for_the_transfer(planned):
    """600 tokens at 0.1 ms each: 60 ms on all first tokens and on the whole, and nothing between tokens."""
    problem, found = planned
    slow = instance([pooled({"gb_per_s": 0.1, "kv_kib_per_token": 1e4 / 1024}, LONG, rate_rps=150.0)])
    near, far = ({one.workload: one.p50.mean_ms for one in simulate(one, found.plan, 40, seed=5).timed}
                 for one in (problem, slow))
    assert far["chat-prefill: TTFT"] - near["chat-prefill: TTFT"] == pytest.approx(60.0, abs=1e-6)
    assert far["chat"] - near["chat"] == pytest.approx(60.0, abs=5.0)
    assert far["chat-decode: TPOT"] == pytest.approx(near["chat-decode: TPOT"], rel=0.02)


def test_too_much_for_a_pool_is_told_of_its_own_limit(planned):
    problem, found = planned
    busier = problem.replace(workloads=[one.model_copy(update={"rate_rps": 400.0}) for one in problem.workloads])
    plan = found.plan.model_copy(update={"digest": "", "gpus": tuple(
        gpu.model_copy(update={"slices": tuple(piece.model_copy(update={"replicas": tuple(
            one.model_copy(update={"rate_rps": one.rate_rps * 400 / 150}) for one in piece.replicas)})
            for piece in gpu.slices)}) for gpu in found.plan.gpus)})
    messages = {one.workload: one.message for one in verify(busier, plan).violations if one.kind == "latency"}
    assert "time to the first token" in messages["chat-prefill"] or "whole answer" in messages["chat-prefill"]
    assert "chat-prefill: TTFT" in simulate(busier, plan, 40).late


@pytest.mark.parametrize(("workload", "says"), [
    (pooled({"gb_per_s": -1.0}), "disaggregated.gb_per_s"),
    (pooled({"kv_kib_per_token": -1.0}), "disaggregated.kv_kib_per_token"),
    (pooled(slo={"e2e_ms": 900.0}), "give slo.ttft_ms, for prefill, and slo.tpot_ms, for decode"),
    (pooled(slo=LIMITS | {"e2e_ms": 300.0}), "leave the decode pool nothing"),
    (pooled(tokens=CHAT | {"output": {"mean": 1.0}}), "need no decode pool"),
    (pooled(model="llama-9b"), "no performance data for 'llama-9b'"),
    (pooled(slo=LIMITS | {"e2e_ms": 900.0, "percentile": 99.99}), "up to percentile 99.98"),
])
def test_refuses_in_a_line(workload, says):
    with pytest.raises(ValueError, match=says):
        instance([workload])


def test_other_stages_of_tokens_are_refused():
    with pytest.raises(ValueError, match="disaggregated: true in the tokens of one"):
        instance([chat(), chat("next")], workflows=[{"name": "app", "stages": [["chat"], ["next"]]}])

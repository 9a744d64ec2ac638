"""Plans with language models: proven against brute force, kept by replays, beside other workloads."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_instances import LIMITS, chat, instance, performance

from provision import simulate, solve, verify
from provision.exporters.triton import render
from provision.formulations.search.segments import best_segments
from provision.models.problem.method import UnsupportedError
from provision.sweeps.parameters import changed

TWO_TYPES = [{"gpu": "h100-80gb", "price_per_hour": 4.0, "mig": False}, {"gpu": "v100", "price_per_hour": 1.5}]
FILES = [performance("h100-80gb", whole=(400_000, 1.0)), performance("v100", whole=(50_000, 2.5))]


def least_cost(rate_rps, rates_rps, prices):
    """The least cost that carries a rate, all counts tried."""
    most = [int(rate_rps / one) + 1 if one else 0 for one in rates_rps]
    return min(sum(n * price for n, price in zip(counts, prices, strict=True))
               for counts in product(*(range(one + 1) for one in most))
               if sum(n * rate for n, rate in zip(counts, rates_rps, strict=True)) >= rate_rps * (1 - 1e-9))


@pytest.mark.parametrize("method", ["auto", "master"])
def test_proven_optimum_is_that_of_brute_force(method):
    problem = instance([chat("near", 170.0), chat("far", 90.0, slo=LIMITS | {"ttft_ms": 120.0})], TWO_TYPES, FILES)
    rates = best_segments(problem).throughput_rps
    expected = sum(least_cost(one.rate_rps, row, (4.0, 1.5)) for one, row in zip(problem.workloads, rates, strict=True))
    settings = {"slack": "no"} if method == "auto" else {}
    found = solve(problem, method, replay=False, **settings)
    assert (found.status, found.objective, found.bound) == ("optimal", pytest.approx(expected), pytest.approx(expected))


def test_plan_keeps_its_limits_in_a_replay_with_other_arrivals():
    problem = instance([chat(rate_rps=280.0)], policy={"headroom": 0.0})
    found = solve(problem)
    assert found.status == "optimal" and not found.replay.late
    report = simulate(problem, found.plan, 120, seed=11)
    assert report.ok and [one.workload for one in report.timed] == [
        "chat", "chat: TTFT", "chat: TPOT"]
    answers, first, _ = report.timed
    assert first.p99.mean_ms < answers.p99.mean_ms and answers.arrived == answers.served + answers.in_flight


def test_half_of_the_gpus_break_them():
    problem = instance([chat(rate_rps=280.0)])
    plan = solve(problem, "greedy", replay=False).plan
    half = plan.model_copy(update={"gpus": plan.gpus[: len(plan.gpus) // 2]})
    assert "chat: TTFT" in simulate(problem, half, 30).late


@settings(max_examples=3)
@given(st.floats(1, 900), st.floats(1.0, 3.0))
def test_more_traffic_and_more_headroom_need_no_fewer_gpus(rate_rps, factor):
    few, many, roomy = (
        solve(instance([chat(rate_rps=rate)], policy={"headroom": extra}), "greedy", replay=False).objective
        for rate, extra in ((rate_rps, 0.0), (rate_rps * factor, 0.0), (rate_rps, factor - 1.0))
    )
    assert few <= many == roomy


def test_less_of_the_limits_to_use_carries_less():
    loose, tight = (best_segments(instance([chat()], policy={"safety": part})).throughput_rps for part in (1.0, 0.5))
    assert 0 < tight[0, 0] < loose[0, 0]


def test_beside_another_network_on_slices_of_one_fleet():
    fleet = [{"gpu": "a100-80gb"}]
    files = ["parvagpu-a100", performance("a100-80gb", **{"3g40gb": (150_000, 1.8), "7g80gb": (400_000, 1.5)})]
    search = {"name": "search", "model": "resnet50", "slo_ms": 205.0, "rate_rps": 800.0}
    problem = instance([chat(rate_rps=20.0), search], fleet, files)
    found = solve(problem, slack="no")
    assert found.status == "optimal" and found.objective == 1 and verify(problem, found.plan).ok
    assert not {"chat", "chat: TTFT", "chat: TPOT"} & set(simulate(problem, found.plan, 60).late)


def test_the_engine_setting_that_carries_most_is_chosen():
    files = [performance("h100-80gb", engine={"max_sequences": (4, 64)}, whole=(400_000, 1.0))]
    plan = solve(instance([chat()], files=files), "greedy", replay=False).plan
    [replica] = {one.batch for *_, one in plan.replicas()}
    assert replica == 64


@pytest.mark.parametrize(("workload", "says"), [
    (chat(slo={"ttft_ms": 300.0, "tpot_ms": 3.0}), r"no slice keeps ttft_ms 300, tpot_ms 3, .* tpot_ms 6\.\d+"),
    (chat(tokens={"input": {"mean": 399_990.0}, "output": {"mean": 11.0}}), "longest request has 400001 tokens"),
])
def test_infeasible_says_what_would_work(workload, says):
    found = solve(instance([workload]))
    assert found.status == "infeasible"
    assert re.search(says, found.reason)


def test_limits_that_would_work_do():
    asked = {"ttft_ms": 20.0, "tpot_ms": 3.0, "e2e_ms": 100.0}
    reason = solve(instance([chat(slo=asked)])).reason
    named = re.findall(r"(\w+_ms) ([\d.]+)", reason.split(" come; ")[1])
    again = instance([chat(rate_rps=0.01, slo={name: float(value) * 1.001 for name, value in named})])
    assert solve(again, "greedy", replay=False).status in ("feasible", "optimal")


@pytest.mark.parametrize(("changes", "says"), [
    ({"tokens": None, "slo_ms": 100.0, "slo": None}, "add tokens"),
    ({"slo": {"ttft_ms": 100.0}}, "add e2e_ms, or ttft_ms and tpot_ms"),
    ({"slo": {"e2e_ms": 100.0}, "slo_ms": 90.0}, "same limit"),
    ({"tokens": {"input": {"mean": 5.0, "p99": 2.0}, "output": {"mean": 1.0}}}, "p99 2 should be from the mean 5"),
    ({"tokens": {"input": {"mean": 0.5}, "output": {"mean": 1.0}}}, "greater than or equal to 1"),
    ({"tokens": {"input": {"mean": 5.0, "min": 2.0}, "output": {"mean": 1.0}}}, "tokens are given by mean"),
])
def test_refuses_in_a_line(changes, says):
    with pytest.raises(ValueError, match=says):
        instance([chat(**changes)])


def test_what_knows_nothing_of_tokens_refuses_them():
    with pytest.raises(UnsupportedError, match="language models"):
        solve(instance([chat()]), "parvagpu")
    with pytest.raises(ValueError, match="queue_limit is not for language models"):
        problem = instance([chat()])
        simulate(problem, solve(problem, "greedy").plan, 5, queue_limit=3)


def test_a_sweep_of_slos_scales_all_limits():
    [one] = changed(instance([chat()]), {"slo": 2.0}).workloads
    assert (one.slo.ttft_ms, one.slo.tpot_ms, one.slo_ms) == (600.0, 40.0, 2 * (300 + 20 * 59))


def test_triton_is_told_that_it_batches_otherwise(tmp_path):
    problem = instance([chat()])
    with pytest.raises(ValueError, match="serves no language models"):
        render(solve(problem, "greedy").plan, problem, 8)

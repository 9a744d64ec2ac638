"""inferno: its queue, its greedy, and whole plans."""

import math
from pathlib import Path

import pytest
from inferno import Limits, highest_rate_rps
from token_instances import chat, instance, performance

from provision import solve
from provision.heuristics.rivals.inferno import (
    Choice,
    Coefficients,
    Demand,
    Setting,
    choose,
    means,
    replicas,
)
from provision.instances.importers.tokens.inferno import read_inferno

INFERNO = Path(__file__).resolve().parents[4] / "shared" / "data" / "inferno"
COSTS, ASKED, LIMITS = Coefficients(17.0, 0.034, 0.001), Demand(128, 1024), Limits(itl_ms=40.0, ttft_ms=1000.0)


def test_a_single_request_meets_nobody():
    alone, bare = (means(COSTS, ASKED, 1, 1e-9, Setting(own=own)) for own in (True, False))
    own = 0.034 + 0.001 * (128 + 512)
    delta = (128 * 0.035 + 1024 * (0.034 + 0.001 * (128 + 512.5))) / 1025
    prefill = 17.0 + 0.035 * 128
    assert alone.batch == pytest.approx(0, abs=1e-6) and alone.itl_ms == pytest.approx(17.0 + delta + own, abs=0.01)
    assert alone.itl_ms - bare.itl_ms == pytest.approx(own)
    assert alone.ttft_ms == pytest.approx(prefill + alone.itl_ms, abs=1e-3)


def test_the_highest_rate_is_at_a_limit_or_saturates():
    rate = highest_rate_rps(COSTS, ASKED, LIMITS, 38)
    assert means(COSTS, ASKED, 38, rate).ttft_ms == pytest.approx(1000, rel=0.01)
    assert means(COSTS, ASKED, 38, rate).itl_ms <= 40
    unlimited = highest_rate_rps(COSTS, ASKED, Limits(), 38)
    assert unlimited > rate and means(COSTS, ASKED, 38, unlimited).batch <= 38
    assert highest_rate_rps(COSTS, ASKED, Limits(tokens_per_s=1.0), 38) < 0.91 * unlimited
    assert highest_rate_rps(COSTS, ASKED, LIMITS._replace(itl_ms=17.0), 38) == 0


@pytest.mark.skipif(not INFERNO.is_dir(), reason="inferno's instances are not there")
def test_all_replica_counts_of_its_own_solutions():
    for given in (read_inferno(INFERNO / name) for name in ("small", "large")):
        for server in given.servers:
            asked, made = given.target(server), given.solution[server.name]
            [profile] = [one for one in given.profiles
                         if (one.name, one.accelerator) == (server.model, made.accelerator)]
            costs = Coefficients(**profile.parameters.model_dump())
            demand = Demand(server.input_tokens, server.output_tokens)
            rate = highest_rate_rps(costs, demand, Limits(asked.itl_ms, asked.ttft_ms), made.max_batch)
            assert replicas(server.rate_rps, rate) == made.replicas
            found = means(costs, demand, made.max_batch, server.rate_rps / made.replicas)
            assert (found.itl_ms, found.ttft_ms) == pytest.approx((made.itl_ms, made.ttft_ms), rel=1e-3)


def test_who_loses_most_by_its_second_best_goes_first():
    """Two want the last accelerator of the cheap kind; the other one costs the first 9 more, the second 1."""
    first = [Choice(10.0, 1, "cheap", 0), Choice(19.0, 1, "dear", 1)]
    second = [Choice(5.0, 1, "cheap", 0), Choice(6.0, 1, "dear", 1)]
    assert [one.what for one in choose([second, first], [0, 0], {"cheap": 1, "dear": 9})] == [1, 0]
    assert [one.what for one in choose([second, first], [0, 1], {"cheap": 1, "dear": 9})] == [0, 1]
    assert choose([second, first], [0, 0], {"cheap": 1}) == [None, first[0]]


def test_plans_one_type_per_workload_and_costs_no_less_than_the_optimum():
    fleet = [{"gpu": "h100-80gb", "price_per_hour": 4.0, "mig": False}, {"gpu": "v100", "price_per_hour": 1.5}]
    files = [performance("h100-80gb", whole=(400_000, 1.0)), performance("v100", whole=(50_000, 2.5))]
    problem = instance([chat("near", 170.0), chat("far", 90.0)], fleet, files)
    greedy, best = solve(problem, "inferno"), solve(problem, replay=False, slack="no")
    assert greedy.report.ok and best.status == "optimal" and greedy.objective >= best.objective
    types = {}
    for at, *_, replica in greedy.plan.replicas():
        types.setdefault(replica.workload, set()).add(greedy.plan.gpus[at].gpu)
    assert all(len(one) == 1 for one in types.values())


def test_no_type_left_is_said():
    fleet = [{"gpu": "h100-80gb", "mig": False, "count": 1}]
    found = solve(instance([chat("near", 50.0), chat("far", 50.0)], fleet), "inferno")
    assert found.plan is None and "no single type left for far" in found.reason and math.isfinite(found.solve_seconds)

"""The configurations beside the plan of a described language model, and their Pareto front."""

from math import ceil

import pytest

from provision.answers import configurations as module
from provision.answers.configurations import (
    APART,
    TOGETHER,
    Configuration,
    configurations,
    disaggregated,
    pareto,
    told,
    top,
)
from provision.models.base.clock import Deadline
from provision.starting.described import Described, instance_described


def _one(per_user, per_gpu, cost=1.0, tpot_ms=30.0):
    return Configuration("h100-80gb", "whole", TOGETHER, tpot_ms, 2, cost, per_gpu, per_user)


def test_the_front_has_what_nothing_beats():
    fast, middle, full = _one(100, 10), _one(50, 20), _one(30, 40)
    assert pareto([full, _one(40, 15), fast, middle, _one(30, 39)]) == [fast, middle, full]


def test_the_top_is_by_cost_within_the_stated_limit():
    within = [_one(30, 10, cost) for cost in (4.0, 2.0, 3.0, 1.0)]
    assert [one.cost_per_hour for one in top([*within, _one(90, 9, 0.5, tpot_ms=10.0)])] == [1.0, 2.0, 3.0]


def test_pools_of_one_model(monkeypatch):
    monkeypatch.setattr(module, "FASTER", (1.0,))
    options = Described(model="llama-3.1-8b", rate=20, isl=1024, osl=256, ttft=500, tpot=30, gpus="h100", tp=(1,))
    instance, _ = instance_described(options)
    assert [one.name for one in disaggregated(instance).workloads] == ["llama-3.1-8b-prefill", "llama-3.1-8b-decode"]
    together, apart = configurations(instance, Deadline(60))
    assert (together.pools, apart.pools) == (TOGETHER, APART)
    price = instance.fleet[0].price_per_hour
    for one in (together, apart):
        assert one.cost_per_hour == pytest.approx(one.gpus * price)
        assert one.tokens_per_s_per_user == pytest.approx(1000 / 30)
    assert together.gpus == ceil(20 * 256 / together.tokens_per_s_per_gpu)


def test_no_time_means_none():
    options = Described(model="llama-3.1-8b", rate=20, isl=1024, osl=256, ttft=500, tpot=30, gpus="h100")
    assert configurations(instance_described(options)[0], Deadline(0)) == []


@pytest.mark.parametrize(("pools", "cost", "said"), [
    (APART, 90.0, True), (APART, 80.0, False), (TOGETHER, 90.0, False)])
def test_a_cheaper_way_than_the_proven_plan_is_said_to_be_one(pools, cost, said):
    """The bound of a plan of aggregated servers says nothing of disaggregated ones."""
    one = Configuration("h100-80gb", "whole", pools, 40.0, 12, 82.56, 336.0, 25.0)
    assert any("--disaggregated" in line for line in told([one], True, cost)) == said

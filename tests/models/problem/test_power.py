"""Watts and energy beside prices: what plans cost, the limit that search and both verifiers keep, and bad input."""

import itertools
import math

import pytest

import provision
from provision.draw.verdict import sentence
from provision.models.hardware.gpu import gpu_types
from provision.models.problem import power_limit
from provision.models.problem.objective import cost_per_hour, draw_of, objective_of, power_told
from provision.models.problem.power import Power
from provision.verification.independent.nvidia import CAPS_W
from provision.verification.second import second_opinion

PRICED = {"price_per_kwh": 0.5, "overhead": 1.2}


def _instance(power=None, rates=(2600, 60), fleet=None, **more):
    return provision.Instance.model_validate({
        "version": 2, "name": "power", "policy": {"latency_budget": "half_slo"}, "power": power,
        "fleet": fleet or [{"gpu": "a100-80gb", "price_per_hour": 1.0}], "performance": ["parvagpu-a100", "mlperf-l4"],
        "workloads": [{"name": "tags", "model": "resnet50", "slo_ms": 200, "rate_rps": rates[0]},
                      {"name": "find", "model": "bert", "slo_ms": 6000, "rate_rps": rates[1]}]} | more)


MIXED = [{"gpu": "a100-80gb", "price_per_hour": 1.0}, {"gpu": "l4", "price_per_hour": 2.0}]
"""A100s are cheap and draw 400 W, L4s are dear and draw 72 W; they carry only tags."""


def test_energy_is_a_part_of_the_cost():
    instance = _instance(PRICED)
    result = provision.solve(instance, time_limit_s=8)
    draw = draw_of(instance, result.plan)
    many = len(result.plan.gpus)
    assert draw.idle_w == pytest.approx(0.18 * 400 * many) and draw.full_w == 400 * many
    assert draw.idle_w < draw.mean_w < draw.full_w
    assert result.report.power == draw._asdict()
    assert result.objective == pytest.approx(many * (1 + 0.5 * 1.2 * 0.072))
    assert cost_per_hour(instance, result.plan) == pytest.approx(many + 0.5 * 1.2 * draw.mean_w / 1000)
    assert result.report.cost_per_hour == cost_per_hour(instance, result.plan)
    assert second_opinion(instance, result.plan).cost_per_hour == pytest.approx(result.report.cost_per_hour)
    assert result.status == "optimal" and "% better than this one." in sentence(instance, result)  # what load adds
    [told] = power_told(instance, result.plan)
    assert f"{draw.mean_w:,.0f} W on average" in told and "assumed" in told
    stated = _instance(PRICED | {"watts": {"a100-80gb": {"idle_w": 50.0, "full_w": 300.0}}})
    assert draw_of(stated, result.plan).full_w == 300 * many
    assert "assumed" not in next(power_told(stated, result.plan))


def test_mean_watts_grow_with_the_load():
    plan = provision.solve(_instance(PRICED), "greedy", 4).plan
    half = plan.model_copy(update={"gpus": tuple(gpu.model_copy(update={"slices": tuple(
        piece.model_copy(update={"replicas": tuple(one.model_copy(update={"rate_rps": one.rate_rps / 2})
                                                   for one in piece.replicas)}) for piece in gpu.slices)})
        for gpu in plan.gpus)})
    full, less = draw_of(_instance(PRICED), plan), draw_of(_instance(PRICED), half)
    assert less.mean_w - less.idle_w == pytest.approx((full.mean_w - full.idle_w) / 2)


def test_dear_energy_changes_the_fleet():
    cheap = _instance(fleet=[{"gpu": "a100-80gb", "price_per_hour": 1.0}, {"gpu": "l4", "price_per_hour": 1.01}],
                      workloads=[{"name": "tags", "model": "resnet50", "slo_ms": 200, "rate_rps": 2600}])
    dear = cheap.replace(power=Power(price_per_kwh=1.0))
    assert {gpu.gpu for gpu in provision.solve(cheap, time_limit_s=5).plan.gpus} == {"a100-80gb"}
    assert {gpu.gpu for gpu in provision.solve(dear, time_limit_s=5).plan.gpus} == {"l4"}


def _best_within(instance, limit_w):
    """The least objective found for any numbers of A100s and L4s within the limit, each planned as a fleet with counts;
    infinite if none can do it.
    """
    best = math.inf
    for a100 in range(int(limit_w // 400) + 1):
        counts = {"a100-80gb": a100, "l4": int((limit_w - 400 * a100) // 72)}
        fleet = [one.model_copy(update={"count": counts[one.gpu]}) for one in instance.fleet]
        result = provision.solve(instance.replace(fleet=fleet, power=None), time_limit_s=3)
        assert result.plan is not None or result.status == "infeasible"
        best = min(best, result.objective or math.inf)
    return best


@pytest.mark.parametrize("limit_w", [900, 500, 390])
def test_the_limit_of_a_mixed_fleet_is_kept_by_search_and_verifiers(limit_w):
    instance = _instance({"limit_w": float(limit_w)}, rates=(16_000, 20), fleet=MIXED)
    best = _best_within(instance, limit_w)
    result = provision.solve(instance, time_limit_s=12)
    if best == math.inf:
        assert result.status == "infeasible" and "power.limit_w" in result.reason
        return
    assert result.verified and draw_of(instance, result.plan).full_w <= limit_w
    assert result.bound is None or result.bound <= best * (1 + 1e-6)
    assert result.objective == pytest.approx(best)
    assert second_opinion(instance, result.plan).verdict != "violated"


@pytest.mark.parametrize("limit_w", [60.0, 500.0, 1000.0])
def test_most_throughput_keeps_the_limit(limit_w):
    fleet = [one | {"count": many} for one, many in zip(MIXED, (3, 4), strict=True)]
    tags = [{"name": "tags", "model": "resnet50", "slo_ms": 200, "rate_rps": 100}]
    most = _instance({"limit_w": limit_w}, fleet=fleet, workloads=tags, objective="max_throughput")
    best = 0.0
    for a100, l4 in itertools.product(range(4), range(5)):
        if 0 < 400 * a100 + 72 * l4 <= limit_w:
            counts = [one.model_copy(update={"count": many}) for one, many in zip(most.fleet, (a100, l4), strict=True)]
            best = max(best, provision.solve(most.replace(fleet=counts, power=None), time_limit_s=3).objective or 0.0)
    found = provision.solve(most, time_limit_s=8)
    if not best:
        assert found.status == "infeasible" and "power.limit_w" in found.reason
        return
    assert found.objective == pytest.approx(best, rel=1e-4) and found.bound >= best * (1 - 1e-6)
    assert draw_of(most, found.plan).full_w <= limit_w


def test_a_list_of_fleets_that_ends_early_claims_nothing(monkeypatch):
    """Only the first of many fleets is planned: its plan is one, its bound is none."""
    monkeypatch.setattr(power_limit, "MOST_FLEETS", 0)
    fleet = [one | {"count": many} for one, many in zip(MIXED, (3, 4), strict=True)]
    tags = [{"name": "tags", "model": "resnet50", "slo_ms": 200, "rate_rps": 100}]
    most = _instance({"limit_w": 900.0}, fleet=fleet, workloads=tags, objective="max_throughput")
    first, whole = (provision.solve(most.replace(power=None, fleet=[
        one.model_copy(update={"count": many}) for one, many in zip(most.fleet, counts, strict=True)]), time_limit_s=3)
        for counts in ((2, 1), (3, 4)))
    found = provision.solve(most, time_limit_s=8)
    assert found.objective == pytest.approx(first.objective, rel=1e-4)
    assert found.status == "feasible" and found.bound == pytest.approx(whole.bound, rel=1e-4)


def test_replanning_tells_that_nothing_fits_within_the_limit():
    running = provision.solve(_instance(), time_limit_s=5).plan
    tight = _instance({"limit_w": 400.0 * len(running.gpus)}, rates=(9000, 60))
    found = provision.replan(tight, running, time_limit_s=8)
    assert found.status.startswith("infeasible") and "power.limit_w" in found.status


def test_a_plan_over_the_limit_is_refused_by_both_verifiers():
    free = provision.solve(_instance(), time_limit_s=5).plan
    tight = _instance({"limit_w": 400.0 * len(free.gpus) - 1})
    [violation] = provision.verify(tight, free).violations
    assert violation.kind == "power" and violation.value == 400 * len(free.gpus) and "limit_w" in violation.message
    assert any("W" in line for line in second_opinion(tight, free).faults)
    none = provision.solve(tight, time_limit_s=5)
    assert none.status == "infeasible" and "power.limit_w" in none.reason


def test_the_data_sheets_agree():
    assert {name: one.power_cap_w for name, one in gpu_types().items() if name in CAPS_W} == CAPS_W


@pytest.mark.parametrize(("power", "more", "said"), [
    ({"price_per_kwh": 0.3}, {"fleet": [{"gpu": "a100-80gb"}]}, "price_per_hour"),
    ({"watts": {"a100-80gb": {"idle_w": 500.0, "full_w": 300.0}}}, {}, "exchange them"),
    ({"watts": {"a100": {"idle_w": 5.0, "full_w": 300.0}}}, {}, "a100"),
    ({"node_limit_w": 300.0}, {}, "draws up to 400 W"), ({"overhead": 0.5}, {}, "overhead"),
    ({"limit": 900.0}, {}, "limit")])
def test_bad_input_is_refused(power, more, said):
    with pytest.raises(ValueError, match=said):
        _instance(power, **more)


def test_committed_and_equal_tiers_keep_the_limit():
    fleet = [{"gpu": "a100-80gb", "price_per_hour": 3.0, "count": 1, "committed": True},
             {"gpu": "a100-80gb", "price_per_hour": 1.0, "count": 9}]
    for objective in ("min_cost", "min_gpus"):
        free, tight = (_instance({"price_per_kwh": 0.5} | limit, fleet=fleet, objective=objective)
                       for limit in ({}, {"limit_w": 800.0}))
        found = [provision.solve(one, time_limit_s=6) for one in (free, tight)]
        assert found[0].objective == pytest.approx(found[1].objective) and found[1].status == "optimal"


def test_instances_without_power_keep_their_digest():
    assert "power" not in provision.read("parvagpu-s1").model_dump(mode="json")
    assert objective_of(_instance()).value(provision.solve(_instance(), "greedy", 2).plan) % 1 == 0

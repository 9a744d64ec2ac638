"""Breakpoints: where the GPUs of the best plan change, and how that is told."""

from collections import Counter

import numpy as np
import pytest

import provision
from provision.models.base.errors import InputError
from provision.sweeps import words
from provision.sweeps.breakpoints import Breakpoint, breakpoints
from provision.sweeps.parameters import changed

SETTINGS = {"method": "auto", "time_limit_s": 60.0, "seed": 0}


@pytest.fixture(scope="module")
def two_types():
    """1,000 requests/s of a model that a V100 serves at 200 and a T4 at 80 requests/s."""
    tables = [
        {"version": 1, "name": f"{gpu}-table", "kind": "measured-segments", "gpu": gpu,
         "models": {"m": {"points": [("whole", 8, 1, rps, 20.0)]}}}
        for gpu, rps in (("v100", 200.0), ("t4", 80.0))
    ]
    fleet = [{"gpu": "v100", "price_per_hour": 3.0}, {"gpu": "t4", "price_per_hour": 0.5}]
    workloads = [{"name": "w", "model": "m", "slo_ms": 100.0, "rate_rps": 1000.0}]
    return provision.Instance(version=1, name="two-types", fleet=fleet, performance=tables, workloads=workloads)


@pytest.mark.parametrize(("name", "low", "high"), [("parvagpu-s2", 0.7, 1.4)])
def test_breakpoints_agree_with_a_fine_grid(name, low, high):
    instance = provision.read(name)
    found = breakpoints(instance, "rate", [low, (low + high) / 2, high], SETTINGS)
    grid = np.linspace(low, high, 8)
    gpus = [provision.solve(changed(instance, {"rate": factor}), **SETTINGS).report.gpus for factor in grid.tolist()]
    for factor, number in zip(grid, gpus, strict=True):
        passed = [one for one in found if one.above <= factor]
        expected = passed[-1].after if passed else found[0].before
        assert {"a100-80gb": number} == expected
    assert len(found) == len(set(gpus)) - 1 and all(one.above - one.below <= 1e-5 * one.above for one in found)


def test_where_a_cheaper_type_pays_off(two_types):
    """Against every mix of V100s and T4s that carries the demand."""
    found = breakpoints(two_types, "price.t4", [0.5, 1.15, 1.25, 2.0], SETTINGS)
    mixes = [(v100, -(-max(0, 1000 - 200 * v100) // 80)) for v100 in range(6)]
    for one in found:
        for price, plan in ((one.below, one.before), (one.above, one.after)):
            least = min(3 * v100 + price * t4 for v100, t4 in mixes)
            assert 3 * plan.get("v100", 0) + price * plan.get("t4", 0) == pytest.approx(least)
    assert found[0].before == {"t4": 13} and found[-1].after == {"v100": 5}


def test_whole_numbers_are_bisected_as_such(two_types):
    limited = two_types.replace(fleet=[one.model_copy(update={"count": 13}) for one in two_types.fleet])
    found = breakpoints(limited, "count.t4", [0.0, 13.0], SETTINGS)
    assert all(one.above - one.below == 1 and one.below % 1 == 0 for one in found)
    for number in range(14):
        passed = [one.after for one in found if one.above <= number]
        result = provision.solve(changed(limited, {"count.t4": number}), **SETTINGS)
        assert Counter(gpu.gpu for gpu in result.plan.gpus) == (passed[-1] if passed else found[0].before)


def test_breakpoints_near_zero_and_too_many_of_them(monkeypatch, two_types):
    idle = two_types.replace(workloads=[two_types.workloads[0].model_copy(update={"min_replicas": 0})])
    found = breakpoints(idle, "rate", [0.0, 0.05], SETTINGS)
    assert [one.before for one in found] == [{}] and found[0].above <= 1e-6
    monkeypatch.setattr("provision.sweeps.breakpoints.MOST_CHANGES", 2)
    with pytest.raises(InputError, match="more than 2 changes"):
        breakpoints(idle, "rate", [0.05, 1.0], SETTINGS)


@pytest.mark.parametrize("factors", [[1.4, 0.8, 1.2], [1.2, 1.4]])
def test_the_next_gpu_is_sought_from_what_is(factors):
    """Whatever the order of the values, and where they begin above it."""
    def told(factor):
        gpus = 12 if factor < 1.1 else 14
        return {"gpus": gpus, "plan_gpus": f"a:{gpus}", "objective": 1.0, "status": "optimal", "cost_per_hour": None}

    rows = [{"rate": factor} | told(factor) for factor in factors]
    assert words.answers(told(1), {"rate": factors}, rows, {})[-1] == \
        "The next GPU is due between +0 % and +20 % traffic."
    fewer = Breakpoint(1.05, 1.05, {"a": 12}, {"a": 11})
    grown = Breakpoint(1.1, 1.1, {"a": 11}, {"a": 14})
    assert words.answers(told(1), {"rate": factors}, rows, {"rate": [fewer, grown]})[-1] == \
        "The next GPU is due at +10 % traffic."


def test_a_change_is_told_once_and_its_place_as_far_as_it_is_known():
    sure, wide = (Breakpoint(below, 1.1, {"a": 1}, {"a": 2}) for below in (1.0999999, 1.05))
    assert words.changes("rate", [sure, wide], [1.0, 1.2]) == [
        "From rate 1.1 (10 % more traffic) up: 2 a instead of 1 a.",
        "From rate 1.1 (10 % more traffic) up, or from somewhere above 1.05: 2 a instead of 1 a."]


def test_a_plan_of_fewer_gpus_may_need_one_that_is_not_there():
    """Four GPUs in place of seven, but one of them is new; the cost tells more than the number."""
    def told(plan, cost):
        gpus = sum(int(one.partition(":")[2]) for one in plan.split())
        return {"gpus": gpus, "plan_gpus": plan, "objective": cost, "status": "optimal", "cost_per_hour": cost}

    base, more = told("a100:3 l4:4", 6.0), {"rate": 1.2} | told("a100:3 h100:1", 9.0)
    assert words.answers(base, {"rate": [1.2]}, [more], {}) == [
        "As it is: 7 GPUs (3 a100, 4 l4; 6.00 $ per hour).",
        "20 % more traffic: 4 GPUs (3 a100, 1 h100; 9.00 $ per hour) instead of 7, +50.0% cost.",
        "The next GPU, h100, is due between +0 % and +20 % traffic."]
    change = {"rate": [Breakpoint(1.1, 1.1, {"a100": 3, "l4": 4}, {"a100": 3, "h100": 1})]}
    assert words.answers(base, {"rate": [1.2]}, [more], change)[-1] == "The next GPU, h100, is due at +10 % traffic."


def test_types_are_cut_after_their_prices(two_types):
    for point in ({"types": "v100", "price.t4": 1.0}, {"price.t4": 1.0, "types": "v100"}):
        assert [one.gpu for one in changed(two_types, point).fleet] == ["v100"]

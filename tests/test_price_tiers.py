"""One GPU type at several prices: owned, reserved, on demand."""

import pytest
from pydantic import ValidationError

import provision
from provision.models.disturbance import disturbance
from provision.replan import replan

OWNED, RESERVED, ON_DEMAND = (
    {"gpu": "a100-80gb", "price_per_hour": price, "count": count} for price, count in ((0.5, 4), (2.0, 5), (5.12, None))
)


def bought(fleet, name="parvagpu-s5"):
    return provision.read(name).replace(fleet=[provision.FleetEntry(**entry) for entry in fleet])


@pytest.mark.parametrize("method", ["auto", "greedy", "partition-counts"])
def test_the_cheapest_are_used_up_first(method):
    instance = bought([ON_DEMAND, OWNED, RESERVED])
    found = provision.solve(instance, method)
    gpus = found.report.gpus
    assert found.verified and gpus >= 12
    assert found.objective == pytest.approx(4 * 0.5 + 5 * 2 + (gpus - 9) * 5.12) == found.report.cost_per_hour
    if method in ("auto", "partition-counts"):
        assert found.status == "optimal" and gpus == 12


def test_a_fleet_that_is_too_small_in_all_is_infeasible():
    assert provision.solve(bought([OWNED, RESERVED])).status == "infeasible"
    plan = provision.solve(provision.read("parvagpu-s5")).plan
    report = provision.verify(bought([OWNED, RESERVED]), plan)
    assert [one.kind for one in report.violations] == ["fleet"] and report.violations[0].limit == 9


def test_an_owned_type_beats_a_cheaper_one_to_rent():
    """Four A100s that cost nothing more are used before whole T4s at any price."""
    table = [
        {"version": 1, "name": gpu, "kind": "measured-segments", "gpu": gpu,
         "models": {"m": {"points": [("whole", 8, 1, rps, 20.0)]}}}
        for gpu, rps in (("v100", 200.0), ("t4", 80.0))
    ]
    fleet = [{"gpu": "v100", "price_per_hour": 0.0, "count": 2}, {"gpu": "v100", "price_per_hour": 3.0},
             {"gpu": "t4", "price_per_hour": 0.5}]
    work = [{"name": "w", "model": "m", "slo_ms": 100.0, "rate_rps": 1000.0}]
    instance = provision.Instance(version=1, name="mix", fleet=fleet, performance=table, workloads=work)
    found = provision.solve(instance)
    assert [gpu.gpu for gpu in found.plan.gpus].count("v100") == 2 and found.objective == pytest.approx(8 * 0.5)


def test_replanning_counts_tiers_too():
    instance = bought([OWNED, RESERVED, ON_DEMAND])
    plan = provision.solve(instance).plan
    found = replan(instance, plan)
    assert found.changes == disturbance(plan, plan) and found.objective == pytest.approx(instance.value(plan))


def test_tiers_differ_in_price_and_count_alone():
    with pytest.raises(ValidationError, match="stands twice"):
        bought([OWNED, OWNED])
    with pytest.raises(ValidationError, match="mps"):
        bought([OWNED, RESERVED | {"mps": False}])

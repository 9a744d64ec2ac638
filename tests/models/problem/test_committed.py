"""Committed GPUs are paid for whether a plan uses them or not."""

import pytest

import provision
from provision import InputError
from provision.answers.explain import explain
from provision.answers.types import costs
from provision.models.problem.objective import committed_per_hour, cost_per_hour, objective_of
from provision.verification.second import second_opinion

RESERVED = {"gpu": "a100-80gb", "price_per_hour": 2.0, "count": 3}
ON_DEMAND = {"gpu": "a100-80gb", "price_per_hour": 5.0}
WORKLOADS = [{"name": "search", "model": "bert", "slo_ms": 500, "rate_rps": 120}]


def _instance(committed, rate=1.0, count=3):
    fleet = [RESERVED | {"count": count} | ({"committed": True} if committed else {}), ON_DEMAND]
    workloads = [WORKLOADS[0] | {"rate_rps": 120 * rate}]
    return provision.Instance(version=1, name="shop", fleet=fleet, performance=["parvagpu-a100"], workloads=workloads)


def test_unused_committed_gpus_cost_what_they_cost():
    paid, free = (provision.solve(_instance(committed), time_limit_s=60) for committed in (True, False))
    assert paid.status == free.status == "optimal"
    assert (paid.report.gpus, paid.report.cost_per_hour) == (1, 6.0)
    assert (free.report.gpus, free.report.cost_per_hour) == (1, 2.0)
    assert paid.objective == pytest.approx(0.002)


def test_an_explanation_counts_committed_gpus_that_nobody_uses():
    instance = _instance(True)
    plan = provision.solve(instance, "greedy").plan
    [one] = costs(instance, plan)
    assert (one.per_hour, one.part) == (2.0, pytest.approx(1 / 3))
    found = explain(instance, plan, time_limit_s=4)
    assert found.idle == ["no workload, 2 committed a100-80gb: 4.00 $ per hour, 67% of the whole"]
    assert found.idle[0] in found.sections()["What it costs"]


def test_committed_gpus_are_used_before_any_other():
    instance = _instance(True, rate=15, count=1)
    result = provision.solve(instance, time_limit_s=60)
    assert result.status == "optimal" and result.report.gpus == 2
    assert objective_of(instance).entries_of(result.plan).count(0) == 1
    assert result.report.cost_per_hour == 2.0 + 5.0


def test_the_second_verifier_counts_the_same():
    instance = _instance(True)
    plan = provision.solve(instance, "greedy", time_limit_s=60).plan
    assert second_opinion(instance, plan).cost_per_hour == cost_per_hour(instance, plan) == 6.0
    assert committed_per_hour(instance) == 6.0


def test_committed_needs_count_and_price():
    for field in ("count", "price_per_hour"):
        entry = {name: value for name, value in RESERVED.items() if name != field} | {"committed": True}
        with pytest.raises((InputError, ValueError), match="need their count and price"):
            provision.Instance(version=2, name="shop", fleet=[entry], performance=["parvagpu-a100"],
                               workloads=WORKLOADS)


def test_the_digest_of_other_instances_is_unchanged():
    assert "committed" not in _instance(False).model_dump_json()

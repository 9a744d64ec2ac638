"""A Planner gives the answers of solve, also after changes; nothing stale reaches a plan or a bound."""

import numpy as np
import pytest

import provision
from provision.instances.read import generate

LIMIT_S = 20


def distinct(many):
    """Isolated workloads around those of S2, no two alike."""
    base, draw = provision.read("parvagpu-s2"), np.random.default_rng(0)
    drawn = [base.workloads[at % len(base.workloads)].model_copy(update={
        "name": f"w{at}", "rate_rps": draw.uniform(50, 900)}) for at in range(many)]
    return base.replace(workloads=tuple(drawn))


def shares(many, **changes):
    """Workloads of iGniter's generator on V100s, which they share."""
    instance = generate(many, 0)
    return instance.replace(workloads=tuple(one.model_copy(update=changes) for one in instance.workloads))


def moved(instance, number):
    """Rates of a tenth of the workloads, moved by up to 20 %."""
    draw = np.random.default_rng(number)
    chosen = draw.choice(len(instance.workloads), max(1, len(instance.workloads) // 10), replace=False)
    return {instance.workloads[at].name: instance.workloads[at].rate_rps * draw.uniform(0.8, 1.2) for at in chosen}


@pytest.mark.parametrize("instance", [distinct(220), shares(8), provision.read("igniter-testbed-12")],
                         ids=["isolated", "shared", "testbed"])
def test_answers_are_those_of_solve(instance):
    planner = provision.Planner(instance)
    planner.solve(LIMIT_S, replay=False)
    for number in (1, 2):
        changed = planner.update(rates=moved(instance, number))
        again = planner.solve(LIMIT_S, gap=0.005, replay=False)
        anew = provision.solve(changed, time_limit_s=LIMIT_S, replay=False, gap=0.005)
        assert again.report.ok and again.plan.digest == changed.digest
        assert again.bound <= anew.objective * (1 + 1e-9) and anew.bound <= again.objective * (1 + 1e-9)
        assert again.gap <= 0.005 or again.objective <= anew.objective * (1 + 1e-9)


def test_workloads_come_and_go():
    planner = provision.Planner(shares(8))
    planner.solve(LIMIT_S, replay=False)
    first, second = planner.instance.workloads[:2]
    changed = planner.update(rates={second.name: second.rate_rps * 1.1}, remove=[first.name],
                             add=[first.model_dump(exclude_none=True) | {"name": "new", "rate_rps": 30.0}])
    assert "new" in changed.workload and first.name not in changed.workload
    found = planner.solve(LIMIT_S, replay=False)
    anew = provision.solve(changed, time_limit_s=LIMIT_S, replay=False)
    assert found.report.ok and found.bound <= anew.objective and anew.bound <= found.objective
    assert {one.workload for *_, one in found.plan.replicas()} == set(changed.workload)


@pytest.mark.parametrize("change, told", [
    ({"rates": {"nobody": 1.0}}, "rates: the instance has no workload 'nobody'"),
    ({"remove": ["nobody"]}, "remove: the instance has no workload 'nobody'"),
    ({"rates": {"App1": -1.0}}, "requests/s, 0 or more"),
    ({"add": [{"name": "App1"}]}, "add: "),
])
def test_bad_changes_change_nothing(change, told):
    instance = shares(3)
    planner = provision.Planner(instance)
    name = instance.workloads[0].name
    change = {key: {name if one == "App1" else one: rate for one, rate in value.items()} if key == "rates" else value
              for key, value in change.items()}
    with pytest.raises(provision.InputError, match=told):
        planner.update(**change)
    assert planner.instance is instance


def test_a_workload_cannot_stand_twice():
    planner = provision.Planner(shares(3))
    with pytest.raises(provision.InputError, match="twice"):
        planner.update(add=[planner.instance.workloads[0]])
    assert len(planner.instance.workloads) == 3

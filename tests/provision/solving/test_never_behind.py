"""``auto`` is not behind what it begins with: plans of quick methods, and those of narrower instances."""

from importlib import import_module
from pathlib import Path

import pytest

import provision
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search
from provision.solving import detour, staged
from provision.solving.schedule import DetourSchedule

auto = import_module("provision.solving.auto")
AUDIT = Path(__file__).resolve().parents[4] / "shared/data/audit"
PAIR = {"version": 2, "name": "pair", "fleet": [{"gpu": "v100", "price_per_hour": 3.0}],
        "performance": ["colocation-v100"], "policy": {"latency_budget": "half_slo"},
        "workloads": [{"name": "w0", "model": "resnet50", "slo_ms": 49.4, "rate_rps": 430, "min_replicas": 3},
                      {"name": "w1", "model": "resnet50", "slo_ms": 60.6, "rate_rps": 404, "max_share_per_gpu": 0.5}]}


def nothing(instance, search):
    return Outcome("unknown", "completed")


def test_splitting_never_costs():
    """Two workloads that split: planned as few equal replicas first, since the whole program takes longer."""
    assert provision.solve(Instance.model_validate(PAIR), time_limit_s=4).objective == 6


@pytest.mark.parametrize(("name", "cost"), [
    ("r8_seed16_slo", 3.0), ("r8_seed39_slo", 3.6), ("r8_seed46_slo", 6.0), ("r8_seed70_slo", 3.0),
    ("rand-coloc", 5.0)])
def test_audit_plans_that_were_dearer_than_with_fewer_choices(name, cost):
    if not AUDIT.exists():
        pytest.skip("needs the audit's files in shared/data")
    found = provision.solve(provision.read(AUDIT / f"{name}.yaml"), time_limit_s=6)
    assert found.verified and found.objective <= cost
    assert found.replay is None or not found.replay.late


def test_a_later_stage_gets_a_plan_however_little_time_quick_plans_have(monkeypatch):
    """The smallest batches of the first stage have no quick plan; the next ones are tried all the same."""
    pair = [{"name": "a", "model": "resnet50", "slo_ms": 40, "rate_rps": 290},
            {"name": "b", "model": "ssd", "slo_ms": 80, "rate_rps": 290}]
    instance = Instance.model_validate(PAIR | {
        "performance": ["igniter-v100"], "policy": {}, "workloads": pair,
        "workflows": [{"name": "flow", "stages": [["a"], ["b"]]}]})
    monkeypatch.setattr(detour, "DETOURS", DetourSchedule(quick_s=0.0))
    found = staged.in_bursts(instance, Search(20.0), nothing)
    assert found.plan is not None and provision.verify(instance, found.plan).ok


@pytest.mark.parametrize(("name", "data"), [("gpulets+", "colocation-v100"), ("gpulets+", "igniter-v100"),
                                            ("igniter", "igniter-v100")])
def test_quick_methods_place_what_nobody_asks_for_once(name, data):
    """A workload without requests keeps its one replica, and the method ends."""
    idle = [one | {"rate_rps": 0, "min_replicas": 1, "max_share_per_gpu": 1.0} for one in PAIR["workloads"]]
    found = provision.solve(Instance.model_validate(PAIR | {"workloads": idle, "performance": [data]}), name)
    assert found.plan is not None and len(list(found.plan.replicas())) == 2


def test_greedy_plans_of_parts_of_the_fleet_count_under_random_arrivals():
    """Greedy plans the whole fleet dearer than the same fleet without the V100s."""
    types = [("a100-80gb", 5.12, "parvagpu-a100"), ("v100", 3.06, "igniter-v100"), ("t4", 0.53, "igniter-t4-derived")]
    loads = [("vgg19", 78, 327), ("vgg19", 149, 525), ("resnet50", 114, 297), ("vgg19", 54, 89)]
    instance = Instance.model_validate({
        "version": 1, "name": "draw", "policy": {"latency_budget": "queueing"},
        "fleet": [{"gpu": gpu, "price_per_hour": price} for gpu, price, _ in types],
        "performance": [data for _, _, data in types],
        "workloads": [{"name": f"w{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps}
                      for at, (model, slo_ms, rate_rps) in enumerate(loads)]})
    plan = auto.of_others(auto.narrower)(instance, Search(60.0)).plan
    part = auto.greedy.solve(instance.replace(fleet=instance.fleet[::2]), Search(60.0)).plan
    assert len(part.gpus) == len(plan.gpus) == 5

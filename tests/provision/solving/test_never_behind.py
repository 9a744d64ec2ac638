"""``auto`` is not behind what it begins with: plans of quick methods, and those of narrower instances."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import provision
from provision.heuristics.core import lns
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search
from provision.solving import staged
from provision.solving.methods import methods
from provision.solving.schedule import DetourSchedule

auto = import_module("provision.solving.auto")
AUDIT = Path(__file__).resolve().parents[4] / "shared/data/audit"
PAIR = {"version": 2, "name": "pair", "fleet": [{"gpu": "v100", "price_per_hour": 3.0}],
        "performance": ["colocation-v100"], "policy": {"latency_budget": "half_slo"},
        "workloads": [{"name": "w0", "model": "resnet50", "slo_ms": 49.4, "rate_rps": 430, "min_replicas": 3},
                      {"name": "w1", "model": "resnet50", "slo_ms": 60.6, "rate_rps": 404, "max_share_per_gpu": 0.5}]}


def nothing(instance, search):
    return Outcome("unknown", "completed")


@pytest.fixture
def nothing_else(monkeypatch):
    """No other step of ``auto`` finds anything."""
    monkeypatch.setattr(auto.master, "solve", nothing)
    monkeypatch.setattr(auto.master, "first_answers", nothing)
    for module in (lns, auto.cpsat):
        monkeypatch.setattr(module, "METHODS", [Method("none", "finds nothing", nothing)])
    monkeypatch.setattr(auto, "greedy", SimpleNamespace(METHODS=lns.METHODS, solve=nothing))
    for step in ("_few_replicas", "_unshared", "_one_gpu", "_served"):
        monkeypatch.setattr(auto, step, nothing)
    for step in ("with_parts", "on_parts"):
        monkeypatch.setattr(auto, step, lambda *methods: nothing)


@pytest.mark.usefixtures("nothing_else")
def test_a_plan_of_a_quick_method_is_where_auto_begins():
    plain = [one | {"min_replicas": 1, "max_share_per_gpu": 1.0} for one in PAIR["workloads"]]
    instance = Instance.model_validate(PAIR | {"workloads": plain})
    known = provision.solve(instance, "gpulets+", replay=False)
    found = provision.solve(instance, "auto", time_limit_s=20, replay=False, slack="no")
    assert known.verified and found.objective == known.objective


@pytest.mark.usefixtures("nothing_else")
def test_quick_methods_of_other_packages_count_if_their_plans_hold(monkeypatch):
    instance = provision.read("parvagpu-s1").with_policy(share_slices=True)
    plan = provision.solve(instance.with_policy(share_slices=False), "greedy", replay=False).plan
    empty = plan.model_copy(update={"gpus": plan.gpus[:1]})
    made = [Method(str(at), "given", lambda instance, search, one=one: Outcome("feasible", "completed", one),
                   features=methods()["auto"].features, quick=True) for at, one in enumerate([plan, empty])]
    monkeypatch.setattr(auto, "methods", lambda: {one.name: one for one in made})
    found = provision.solve(instance, "auto", time_limit_s=20, replay=False)
    assert found.plan is not None and len(found.plan.gpus) == len(plan.gpus)


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


def test_throughput_in_turns_begins_with_a_plan_that_serves_all():
    workloads = [{"name": "r", "model": "resnet50", "slo_ms": 150, "rate_rps": 290},
                 {"name": "v", "model": "vgg16", "slo_ms": 160, "rate_rps": 100}]
    instance = Instance.model_validate(PAIR | {
        "fleet": [{"gpu": "rtx2080ti", "price_per_hour": 2.0, "count": 3}], "performance": ["gpulets-2080ti"],
        "objective": "max_throughput", "workloads": workloads})
    found = auto._served(instance, Search())
    assert found.plan is not None and provision.verify(instance, found.plan).ok


def test_a_later_stage_gets_a_plan_however_little_time_quick_plans_have(monkeypatch):
    """The smallest batches of the first stage have no quick plan; the next ones are tried all the same."""
    monkeypatch.setattr(staged, "DETOUR", DetourSchedule(quick_s=0.0))
    pair = [{"name": "a", "model": "resnet50", "slo_ms": 40, "rate_rps": 290},
            {"name": "b", "model": "ssd", "slo_ms": 80, "rate_rps": 290}]
    instance = Instance.model_validate(PAIR | {
        "performance": ["igniter-v100"], "policy": {}, "workloads": pair,
        "workflows": [{"name": "flow", "stages": [["a"], ["b"]]}]})
    found = staged.in_bursts(instance, Search(20.0), nothing)
    assert found.plan is not None and provision.verify(instance, found.plan).ok


@pytest.mark.parametrize(("name", "data"), [("gpulets+", "colocation-v100"), ("gpulets+", "igniter-v100"),
                                            ("igniter", "igniter-v100")])
def test_quick_methods_place_what_nobody_asks_for_once(name, data):
    """A workload without requests keeps its one replica, and the method ends."""
    idle = [one | {"rate_rps": 0, "min_replicas": 1, "max_share_per_gpu": 1.0} for one in PAIR["workloads"]]
    found = provision.solve(Instance.model_validate(PAIR | {"workloads": idle, "performance": [data]}), name)
    assert found.plan is not None and len(list(found.plan.replicas())) == 2


def test_under_random_arrivals_auto_begins_with_greedy_plans_of_parts_of_the_fleet():
    """Greedy plans the whole fleet dearer than the same fleet without the V100s."""
    types = [("a100-80gb", 5.12, "parvagpu-a100"), ("v100", 3.06, "igniter-v100"), ("t4", 0.53, "igniter-t4-derived")]
    loads = [("vgg19", 78, 327), ("vgg19", 149, 525), ("resnet50", 114, 297), ("vgg19", 54, 89)]
    instance = Instance.model_validate({
        "version": 1, "name": "draw", "policy": {"latency_budget": "queueing"},
        "fleet": [{"gpu": gpu, "price_per_hour": price} for gpu, price, _ in types],
        "performance": [data for _, _, data in types],
        "workloads": [{"name": f"w{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps}
                      for at, (model, slo_ms, rate_rps) in enumerate(loads)]})
    step, _ = next(auto._ladder(instance, Search(60.0)))
    plan = step(instance, Search(60.0)).plan
    part = auto.greedy.solve(instance.replace(fleet=instance.fleet[::2]), Search(60.0)).plan
    assert len(part.gpus) == len(plan.gpus) == 5

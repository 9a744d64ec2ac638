"""Memory stated per model and batch: read, interpolated, verified twice, kept by plans, and told where unknown."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from provision import solve, verify
from provision.cli import main
from provision.instances.ledger.ledger import ledger
from provision.instances.read import shipped
from provision.models.performance.catalogue import load_performance
from provision.models.performance.shared_gpus import MemoryStated
from provision.models.problem.prediction import memory_notes
from provision.verification.independent.kinds.profiled import stated_gib
from provision.verification.second import second_opinion


def with_memory(instance, mib, **more):
    """The instance with memory stated for all models: ``mib`` at batch 1, half as much again at 32."""
    data = instance.performance[0]
    models = {name: one.model_copy(update={"memory_mib": ((1, mib), (32, 1.5 * mib))} | more)
              for name, one in data.models.items()}
    return instance.replace(performance=[data.model_copy(update={"models": models})])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1, 9000)), min_size=1, max_size=5), st.integers(1, 200))
def test_both_readings_agree(points, batch):
    sizes, mib = sorted({size for size, _ in points}), sorted(one for _, one in points)
    stated = list(zip(sizes, mib, strict=False))
    ours = MemoryStated(memory_mib=tuple(stated)).memory_gib(batch)
    assert ours == pytest.approx(stated_gib({"memory_mib": stated}, batch))
    assert ours >= stated[0][1] / 1024


def test_between_below_and_beyond_the_stated_batches():
    one = MemoryStated(memory_mib=((2, 1024.0), (4, 2048.0)))
    assert [one.memory_gib(batch) for batch in (1, 2, 3, 4, 8)] == [1, 1, 1.5, 2, 4]
    assert MemoryStated().memory_gib(1) is None


@pytest.mark.parametrize("points", [((4, 10.0), (2, 20.0)), ((1, 20.0), (2, 10.0)), ((1, 10.0), (1, 10.0))])
def test_memory_that_falls_is_refused(points):
    with pytest.raises(ValidationError, match="batch sizes must grow, and memory must not fall"):
        MemoryStated(memory_mib=points)


def test_an_estimate_needs_numbers():
    with pytest.raises(ValidationError, match="there is no memory_mib"):
        MemoryStated(memory_estimated=True)


def test_data_without_memory_keeps_its_digest():
    assert ledger()["igniter-testbed-12"].digest == shipped("igniter-testbed-12").digest
    assert "memory" not in load_performance("colocation-v100").model_dump_json()


def test_plans_that_need_too_much_are_violated_by_both():
    instance, plan = with_memory(shipped("igniter-testbed-12"), 5500.0), ledger()["igniter-testbed-12"].plan
    assert {one.kind for one in verify(instance, plan).violations} == {"memory"}
    assert any("GiB of memory" in one for one in second_opinion(instance, plan).faults)


@pytest.mark.parametrize("name, data, method", [
    ("igniter-testbed-12", "igniter-v100", "greedy"), ("igniter-motivation", "colocation-v100", "master")])
def test_plans_fit_the_memory(name, data, method):
    free = shipped(name).replace(performance=[load_performance(data)])
    instance = with_memory(free, 5500.0)
    result = solve(instance, method, time_limit_s=3)
    assert result.report.ok and result.objective > solve(free, method, time_limit_s=3).objective
    assert second_opinion(instance, result.plan).verdict == "holds"
    assert any("planned again" in note for note in result.notes)


@pytest.mark.parametrize("policy", [{"survive": {"gpu_failures": 1}}, {"even_replicas": True},
                                    {"latency_budget": "half_slo", "headroom": 0.1}], ids=lambda one: next(iter(one)))
@pytest.mark.parametrize("data", ["igniter-v100", "colocation-v100"])
def test_no_policy_ends_in_a_plan_that_needs_too_much(policy, data):
    """Nor without a plan: one replica on each GPU fits."""
    free = shipped("igniter-motivation").replace(performance=[load_performance(data)])
    instance = with_memory(free, 9000.0)
    several = [one.model_copy(update={"max_replicas": None}) for one in instance.workloads]
    instance = instance.replace(policy={**instance.policy.model_dump(), **policy}, workloads=several)
    result = solve(instance, time_limit_s=4)
    assert result.report.ok and second_opinion(instance, result.plan).verdict != "violated"


def test_a_model_larger_than_the_gpu_is_infeasible():
    result = solve(with_memory(shipped("igniter-motivation"), 17000.0), "greedy", time_limit_s=5)
    assert result.status == "infeasible" and "can run alexnet" in result.reason


def test_unknown_and_estimated_memory_is_told(tmp_path, capsys):
    (tmp_path / "plan.json").write_text(ledger()["igniter-motivation"].plan.model_dump_json())
    unknown = ("memory of alexnet, resnet50, vgg19 on v100 is not known and not checked; state memory_mib in "
               "igniter-v100")
    assert main(["verify", "igniter-motivation", str(tmp_path / "plan.json")]) == 0
    assert f"note: {unknown}" in capsys.readouterr().out
    main(["verify", "igniter-motivation", str(tmp_path / "plan.json"), "--json"])
    assert json.loads(capsys.readouterr().out)["notes"] == [unknown]
    guessed = with_memory(shipped("igniter-motivation"), 900.0, memory_estimated=True)
    assert list(memory_notes(guessed)) == ["memory of alexnet, resnet50, vgg19 on v100 is estimated, not measured"]
    assert list(memory_notes(with_memory(shipped("igniter-motivation"), 900.0))) == []
    assert list(memory_notes(shipped("parvagpu-s1"))) == []

"""Why a plan is as it is: types, costs, limits, what more would give, and what changes to the next plan."""

import json
import re
from pathlib import Path

import pytest

import provision
from provision.answers.difference import difference
from provision.answers.explain import explain
from provision.answers.types import costs
from provision.cli import main
from provision.models.base.errors import InputError
from provision.models.problem.objective import objective_of

AUDIT = Path(__file__).parents[4] / "shared/data/audit/v4/explain"
FIELDS = {
    "version": 1, "name": "mixed", "performance": ["parvagpu-a100", "mlperf-l4"],
    "fleet": [{"gpu": "a100-80gb", "price_per_hour": 4.0}, {"gpu": "l4", "price_per_hour": 0.5}],
    "workloads": [{"name": "tags", "model": "resnet50", "slo_ms": 200.0, "rate_rps": 400.0},
                  {"name": "search", "model": "bert", "slo_ms": 500.0, "rate_rps": 60.0}],
}


@pytest.fixture(scope="module")
def mixed():
    """Two GPU types, of which one can run one of the two workloads only, with the best plan."""
    instance = provision.Instance.model_validate(FIELDS, strict=False)
    return instance, provision.solve(instance, time_limit_s=10).plan


def test_costs_add_up_to_the_price_of_the_plan(mixed):
    instance, plan = mixed
    found = costs(instance, plan)
    assert sum(one.per_hour for one in found) == pytest.approx(objective_of(instance).value(plan))
    assert sum(one.part for one in found) == pytest.approx(1)
    for one in found:
        assert one.per_million == pytest.approx(one.per_hour / (instance.workload[one.workload].rate_rps * 0.0036))


def test_every_type_is_told_with_its_cost_or_what_stands_against_it(mixed):
    instance, plan = mixed
    found = explain(instance, plan, time_limit_s=8)
    assert any(line.startswith("All on a100-80gb: ") and "$ per hour" in line for line in found.types)
    [l4] = [line for line in found.types if line.startswith("All on l4: ")]
    assert "not possible" in l4 and "bert" in l4
    assert found.limits[0].startswith("Tightest latency: ") and "5 ms more for every SLO" in found.more[0]
    assert all("With one more " in line and "they carry at least" in line for line in found.more[-2:])


def test_growth_is_that_of_the_gpus_that_are_named(mixed):
    """L4s, though the fleet has A100s: what they are told to carry, they carry; other GPUs do not count."""
    instance, _ = mixed
    few = instance.replace(workloads=[one.model_copy(update={"rate_rps": 4000.0}) for one in instance.workloads
                                      if one.name == "tags"])
    alone = provision.solve(few.replace(fleet=few.fleet[1:]), time_limit_s=5, replay=False).plan
    assert {gpu.gpu for gpu in alone.gpus} == {"l4"}
    [line] = [one for one in explain(few, alone, time_limit_s=6).more if " more traffic" in one]
    part = float(re.search(r"at least (\d+)%", line)[1]) / 100 if "at least" in line else 0.0
    counted = few.fleet[1].model_copy(update={"count": len(alone.gpus)})

    def status(factor):
        grown = few.replace(fleet=[counted], workloads=[few.workloads[0].model_copy(update={
            "rate_rps": few.workloads[0].rate_rps * factor})])
        return provision.solve(grown, time_limit_s=5, replay=False).status

    assert part < 3 and status(1 + part) in ("optimal", "feasible") and status(2 + 3 * part) == "infeasible"


def test_audited_growth_is_not_that_of_other_gpus():
    """Two V100s carry less than 20 % more; two A30s would carry 128 % more."""
    if not AUDIT.is_dir():
        pytest.skip(f"{AUDIT} is not there")
    instance = provision.read(AUDIT / "0.yaml")
    told = explain(instance, provision.read_plan(AUDIT / "0.plan.json"), time_limit_s=4).more
    part = max(float(found[1]) for line in told if line.startswith("Planned anew, these 2 GPUs carry")
               and (found := re.search(r"at least (\d+)%", line)))
    assert part < 20 and sum(line.startswith("With one more ") for line in told) == 2


def test_the_most_of_a_replica_is_within_its_slo():
    """Under queueing less than full batches carry; a replica at that rate holds, and not above."""
    instance = provision.read("parvagpu-s1").with_policy(latency_budget="queueing")
    plan = provision.solve(instance, "greedy", replay=False).plan
    [line] = [one for one in explain(instance, plan, time_limit_s=2).limits if one.startswith("Fullest replica")]
    name, gpu, most = re.search(r"replica: (\S+) on GPU (\d+) gets .* of the ([\d,.]+) requests/s that it carries", line
                                ).groups()
    most = float(most.replace(",", ""))
    one = next(each for each in provision.verify(instance, plan).predictions
               if (each.workload, str(each.gpu)) == (name, gpu))
    assert one.rate_rps <= most < one.throughput_rps
    for factor, holds in ((0.98, True), (1.02, False)):
        full = plan.with_replicas(lambda replica, factor=factor: replica.model_copy(update={
            "rate_rps": most * factor}) if replica.workload == name and replica.rate_rps == one.rate_rps else replica)
        late = [each for each in provision.verify(instance, full).violations if each.kind == "latency"]
        assert bool(late) != holds


def test_one_workload_and_a_type_that_the_fleet_lacks(mixed):
    found = explain(*mixed, workload="tags", on="a30", time_limit_s=8)
    assert all("search" not in line for line in found.limits) and [one.workload for one in found.costs] == ["tags"]
    assert found.types[0].startswith("All on a30: ")
    assert any(line.startswith("On l4 a million requests cost ") for line in found.types)
    with pytest.raises(InputError, match="did you mean 'tags'"):
        explain(*mixed, workload="tag")
    with pytest.raises(InputError, match="no such GPU type"):
        explain(*mixed, on="l44", time_limit_s=8)


def test_the_next_plan_is_told_as_a_difference(mixed):
    instance, plan = mixed
    more = instance.replace(workloads=[one.model_copy(update={"rate_rps": one.rate_rps * 6})
                                       for one in instance.workloads])
    after = provision.replan(more, plan, time_limit_s=10).plan
    before_cost, after_cost = objective_of(instance).value(plan), objective_of(instance).value(after)
    first, gpus, moves, *replicas = difference(instance, plan, after)
    assert first.startswith(f"{after_cost - before_cost:+,.2f} $ per hour, ")
    assert gpus.startswith(f"{after.gpu_count} GPU") and moves.startswith("Moves: ")
    assert any(line.startswith("tags: ") and " instead of " in line for line in replicas)
    assert difference(instance, plan, plan)[-1] == "Nothing moves."


def test_the_verb(mixed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provision.write(mixed[0], "mixed.yaml")
    provision.write(mixed[1], "plan.json")
    assert main(["explain", "mixed.yaml", "plan.json", "--time-limit", "8", "--before", "plan.json"]) == 0
    printed = capsys.readouterr().out
    for title in ("What changes:", "Why these GPUs:", "What it costs:", "What binds:", "What more would give:"):
        assert f"{title}\n" in printed
    assert main(["explain", "mixed.yaml", "plan.json", "--time-limit", "8", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"types", "costs", "limits", "more", "changes", "idle", "tokens"}
    assert main(["explain", "plan.json"]) == 2
    assert "name its file before it" in capsys.readouterr().err


def test_language_models_are_told_in_their_words():
    chat = provision.read("mlperf-llama-3.1-8b-interactive")
    plan = provision.solve(chat, "greedy", replay=False).plan
    name = chat.workloads[0].name
    found = explain(chat, plan, time_limit_s=4)
    [cost], [tokens] = found.costs, found.tokens
    mean = chat.workloads[0].tokens.output.counts.mean
    per_s = chat.workloads[0].rate_rps * mean
    assert f"{cost.per_hour / (per_s * 0.0036):,.3g} $ per million" in tokens
    for limit in ("TTFT", "TPOT"):
        assert sum(line.startswith(f"{name}: {limit} in a replay: P99 ") for line in found.limits) == 1
    [memory] = [line for line in found.limits if "tokens of KV cache" in line]
    assert f"{chat.performance[0].models[chat.workloads[0].model].slices['whole'].kv_tokens:,} tokens" in memory
    assert not any(line.startswith("Tightest latency") for line in found.limits)


def test_markdown_has_the_same_lines(tmp_path, capsys):
    instance = provision.read("parvagpu-s1")
    provision.write(provision.solve(instance, "greedy", replay=False).plan, tmp_path / "plan.json")
    asked = ["explain", "parvagpu-s1", str(tmp_path / "plan.json"), "--before", str(tmp_path / "plan.json"),
             "--time-limit", "0.5"]
    assert main([*asked, "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### What changes" and lines[2].startswith("- ")
    assert not any(one.startswith("  ") for one in lines)

"""What a change of an instance does: the same numbers as the verbs for one instance, limits, and every face."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import provision
from provision.answers.margins import margins_of
from provision.cli import main
from provision.commands.verb import Given, asked
from provision.models.plans.disturbance import disturbance
from provision.models.problem.objective import HOURS_PER_MONTH, cost_per_hour

EXAMPLES = Path(__file__).parents[3] / "examples"


def _instance(**changes):
    content = {"version": 2, "name": "shop", "policy": {"latency_budget": "half_slo"},
               "fleet": [{"gpu": "a100-80gb", "price_per_hour": 1.0, "count": 9}], "performance": ["parvagpu-a100"],
               "workloads": [{"name": "search", "model": "bert", "slo_ms": 6000, "rate_rps": 120},
                             {"name": "tags", "model": "resnet50", "slo_ms": 200, "rate_rps": 3200}]}
    return provision.Instance.model_validate(content | changes)


def _faster(factor):
    base = _instance()
    return base.replace(workloads=[*base.workloads[:1], base.workloads[1].model_copy(
        update={"rate_rps": base.workloads[1].rate_rps * factor})])


@pytest.fixture(scope="module")
def plan():
    return provision.solve(_instance(), time_limit_s=5).plan


def test_a_review_has_the_numbers_of_the_verbs_for_one_instance(plan):
    found = provision.review(_instance(), _faster(2.5), plan, max_cost_increase=9.0, time_limit_s=12)
    told, after = found.summary(), found.after
    assert found.status == "optimal" and found.exit_code == 0
    assert found.fields == ["workloads.tags.rate_rps: 3,200 -> 8,000"]
    assert provision.verify(_faster(2.5), after.plan).ok and not provision.verify(_faster(2.5), plan).ok
    assert found.running.startswith("The plan before no longer holds: workload tags: ")
    costs = [cost_per_hour(_instance(), plan), cost_per_hour(_faster(2.5), after.plan)]
    assert costs[0] < costs[1] == told["objective"] == pytest.approx(told["bound"])
    per_month = [HOURS_PER_MONTH * one for one in costs]
    assert [told["cost_per_month_before"], told["cost_per_month"]] == pytest.approx(per_month)
    assert told["cost_increase"] == pytest.approx(costs[1] / costs[0] - 1)
    assert told["gpus"] == {"a100-80gb": len(after.plan.gpus)} != told["gpus_before"]
    assert {name: told[name] for name in found.changes._fields} == disturbance(plan, after.plan)._asdict()
    assert any(line.startswith("+ a new a100-80gb: ") for line in told["touched"])
    margins = {one.workload: one.rate - 1 for one in margins_of(_faster(2.5), after.plan)}
    assert {one["name"]: one["headroom"] for one in told["slos"]} == pytest.approx(margins)
    assert told["proof"].endswith("Proven: no plan costs less.")


def test_every_limit_is_judged(plan):
    def judged(**limits):
        return provision.review(_instance(), _faster(2.5), plan, time_limit_s=12, **limits)

    open_ = judged()
    moved, increase = open_.changes.moved, open_.summary()["cost_increase"]
    least = min(one["headroom"] for one in open_.rows())
    kept = judged(max_cost_increase=increase, min_headroom=least, max_disturbance=moved)
    assert kept.exit_code == 0 and [one.kept for one in kept.limits] == [True] * 3
    tight = judged(max_cost_increase=increase - 0.01, min_headroom=least + 0.01, max_disturbance=moved - 1)
    assert tight.exit_code == 3 and [one.kept for one in tight.limits] == [False] * 3
    assert tight.verdict == "shop: 3 limits exceeded"
    assert "policy.headroom" in tight.limits[1].told
    assert tight.sections()["Limits"][0] == f"not kept: cost {increase:+.1%}, at most {increase - 0.01:+.1%}"


def test_what_cannot_be_planned_is_a_no(plan):
    slow = _instance(workloads=[{"name": "tags", "model": "resnet50", "slo_ms": 1, "rate_rps": 10}])
    found = provision.review(_instance(), slow, plan, min_headroom=0.1, time_limit_s=4)
    assert found.exit_code == 1 and found.status == "infeasible" and found.after is None
    assert "slo_ms" in found.sections()["Plan"][0] and found.summary()["cost_per_month"] is None
    assert "workloads.search: removed" in found.fields
    broken = provision.review(_instance(), _faster(9), plan, plan, time_limit_s=8)
    assert broken.exit_code == 1 and broken.status == "violated"
    assert f"Does not hold: {broken.reason}" in broken.sections()["Cost"]


def test_other_fleets_workloads_and_prices_are_reviewed(plan):
    dearer = _instance(fleet=[{"gpu": "a100-80gb", "price_per_hour": 2.0}])
    found = provision.review(_instance(), dearer, plan, max_cost_increase=0.05, time_limit_s=4)
    assert found.exit_code == 3 and found.summary()["cost_increase"] == pytest.approx(1)
    assert found.running == "The plan before still holds." and found.changes.moved == 0
    bare = _instance(fleet=[{"gpu": "a100-80gb"}], workloads=[
        {"name": "find", "model": "bert", "slo_ms": 6000, "rate_rps": 120}])
    found = provision.review(_instance(), bare, plan, max_cost_increase=0.0, time_limit_s=4)
    assert found.exit_code == 0 and "cost_increase" in found.summary() and found.limits[0].told.startswith("GPUs ")
    assert {"workloads.tags: removed", "workloads.find: added"} <= set(found.fields)


def test_the_base_is_planned_where_no_plan_is_given():
    found = provision.review(_instance(), _faster(1.1), time_limit_s=12)
    assert found.before.result.status == "optimal" and found.exit_code == 0
    nothing = _instance(workloads=[{"name": "tags", "model": "resnet50", "slo_ms": 1, "rate_rps": 10}])
    with pytest.raises(provision.InputError, match="nothing to compare with"):
        provision.review(nothing, _instance(), time_limit_s=2)


@pytest.mark.parametrize("given", [False, True])
def test_where_nothing_changed_nothing_changes(given):
    """Neither the plan nor what is told of it, though another division of the traffic would do too."""
    shop = _instance(policy={"latency_budget": "queueing"}, workloads=[
        {"name": "search", "model": "bert", "slo_ms": 500, "rate_rps": 120},
        {"name": "tags", "model": "resnet50", "slo_ms": 100, "rate_rps": 3200, "min_replicas": 2}])
    before = provision.solve(shop, "greedy", replay=False).plan if given else None
    found = provision.review(shop, shop, before, time_limit_s=12)
    assert found.after.plan.gpus == found.before.plan.gpus and found.changes.moved == 0
    assert found.fields == [] and found.sections()["The change"] == ["None: both files state the same."]
    assert found.sections()["What moves"][-1] == "Nothing moves."
    for row in found.rows():
        assert (row["met_ms"], row["headroom"]) == (row["met_ms_before"], row["headroom_before"])


def test_the_verb_prints_text_json_and_markdown(plan, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    provision.write(_instance(), "base.yaml")
    provision.write(_faster(2.5), "svc.yaml")
    provision.write(plan, "plan.json")
    line = ["review", "base.yaml", "svc.yaml", "--before", "plan.json", "--time-limit", "8"]
    assert main([*line, "--max-cost-increase", "5%", "--out", "next.json"]) == 3
    text = capsys.readouterr().out
    assert text.startswith("shop: 1 limit exceeded\n") and "tags, batch" in text
    assert provision.verify(_faster(2.5), provision.read_plan("next.json")).ok
    assert main([*line, "--after", "next.json", "--max-cost-increase", "900%", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 0 and told["plan_file"] is None and told["limits"][0]["asked"] == 9
    assert main([*line, "--after", "next.json", "--markdown", "--max-disturbance", "0"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("## shop: ") and "### What moves" in lines
    assert any(one.startswith("| tags, batch | ") for one in lines)
    assert any(one.startswith("- not kept: ") for one in lines)


@pytest.mark.parametrize(("option", "said"), [
    ("--max-cost-increase 5", "write 5% or 0.05"), ("--min-headroom ten", "should be a"),
    ("--max-disturbance -1", "at least 0"), ("--min-headroom=-5%", "at least 0"), ("--before no.json", "no.json")])
def test_careless_settings_are_refused_in_one_line(option, said, capsys):
    try:
        code = main(["review", "parvagpu-s1", "parvagpu-s1", *option.split(), "--time-limit", "1"])
    except SystemExit as ended:
        code = ended.code
    error = capsys.readouterr().err
    assert code == 2 and said in error and "Traceback" not in error


def test_a_job_reviews_too():
    job = asked("review", {"verb": "review", "max_disturbance": 0, "time_limit_s": 6.0})
    content = [one.model_dump(mode="json", exclude_none=True) for one in (_faster(2.5), _instance())]
    told = job.job(Given(content[0], content[1], lambda *_: None))
    assert told["exit_code"] == 3 and told["plan"]["instance"] == "shop" and told["report"]["ok"]


def _steps(name):
    """The shell lines of an example for continuous integration, up to the comment, by what runs them."""
    content = yaml.safe_load((EXAMPLES / name).read_text())
    if "jobs" in content:
        return [one["run"] for one in content["jobs"]["review"]["steps"] if "run" in one and "if" not in one]
    return content["review"]["script"]


@pytest.mark.parametrize(("name", "comment"), [("pull_request.yml", "gh"), ("merge_request.yml", "curl")])
def test_the_examples_for_github_and_gitlab_run_as_shell_steps(name, comment, plan, tmp_path):
    """In a repository with a base and a change; pip and what sends the comment are stand-ins."""
    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=repository, check=True)

    repository, tools = tmp_path / "repository", tmp_path / "tools"
    repository.mkdir()
    tools.mkdir()
    for tool, text in (("pip", ""), (comment, "cp review.md sent.md"),
                       ("provision", f'exec {sys.executable} -m provision "$@"')):
        (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tools / tool).chmod(0o755)
    git("init", "-q", "-b", "main")
    provision.write(_instance(), repository / "svc.yaml")
    provision.write(plan, repository / "plan.json")
    git("add", ".")
    git("commit", "-q", "-m", "base")
    base = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    provision.write(_faster(2.5), repository / "svc.yaml", True)
    seen = {"PATH": f"{tools}:/usr/bin:/bin", "BASE": base.stdout.strip(), "NUMBER": "1", "HOME": str(tmp_path),
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": base.stdout.strip()}
    script = "\n".join(f"{one}\n" for one in _steps(name))
    ran = subprocess.run(["bash", "-c", script], cwd=repository, env=seen, capture_output=True, text=True, check=False)
    comment_text = (repository / "sent.md").read_text()
    assert comment_text.startswith("## shop: no plan that holds") and "Does not hold: workload tags" in comment_text
    assert "Traceback" not in ran.stderr
    assert (ran.returncode == 1) == (comment == "curl")  # GitHub judges the step by itself

"""Plans under ``latency_budget: queueing``: methods and verifier agree, what it cannot judge is refused."""

import json

import pytest

import provision
from provision.cli import main
from provision.formulations.search.segments import best_segments
from provision.instances.read import shipped_instances
from provision.models.problem.policy import Policy

QUEUEING = Policy(latency_budget="queueing", safety=0.9)
METHODS = ("greedy", "parvagpu", "parvagpu-single", "master", "auto")


@pytest.fixture(scope="module", params=["parvagpu-s3", "parvagpu-s5"])
def instance(request):
    """A shipped scenario, its latencies judged by queueing."""
    return provision.read(request.param).replace(policy=QUEUEING)


@pytest.mark.parametrize("method", METHODS)
def test_plans_hold_by_the_scalar_path(instance, method):
    """What methods plan from the tables, the verifier's own path accepts, P99 told for every replica."""
    result = provision.solve(instance, method, replay=False)
    assert result.verified
    predictions = result.report.predictions
    assert all(one.latency_ms <= one.p99_ms <= one.budget_ms * (1 + 1e-9) for one in predictions)
    assert {one.workload: one.budget_ms for one in predictions} == pytest.approx(
        {one.name: 0.9 * one.slo_ms for one in instance.workloads}
    )


def test_a_higher_rate_than_planned_is_late(instance):
    """A segment at its usable rate holds; the verifier names the P99 of one that is given 1.5 % more."""
    segments = best_segments(instance)
    plan = provision.solve(instance, "greedy", replay=False).plan
    kinds = [(kind.profile, index) for index, kind in enumerate(segments.slice_types)]
    names = [one.name for one in instance.workloads]
    *_, piece, replica = max(plan.replicas(), key=lambda found: found[3].rate_rps)
    usable = segments.throughput_rps[names.index(replica.workload), dict(kinds)[piece.profile]]
    gpu = plan.gpus[0]
    for part, broken in ((1.0, set()), (1.015, {"latency"})):
        loaded = replica.model_copy(update={"rate_rps": part * float(usable)})
        slices = (piece.model_copy(update={"replicas": (loaded,)}),)
        alone = plan.model_copy(update={"gpus": (gpu.model_copy(update={"slices": slices}),)})
        mine = [one for one in provision.verify(instance, alone).violations if one.slice == 0]
        assert {one.kind for one in mine} == broken
        assert all("P99" in one.message for one in mine)


def test_half_slo_plans_may_be_late():
    """ParvaGPU's plan of S5 fills segments to their throughput, for which no P99 can be promised."""
    plan = provision.solve(provision.read("parvagpu-s5"), "parvagpu").plan
    report = provision.verify(provision.read("parvagpu-s5").replace(policy=QUEUEING), plan)
    late = [one for one in report.violations if one.kind == "latency"]
    assert late
    assert all("P99" in one.message for one in late)
    assert all(one.p99_ms is None for one in provision.verify(provision.read("parvagpu-s5"), plan).predictions)


def test_queue_delay_is_what_the_batch_leaves():
    """Of half of the SLO under half_slo, of the budget under queueing; never below 0."""
    half = Policy(latency_budget="half_slo", safety=0.9)
    assert half.queue_delay_ms(200, 70) == 30
    assert QUEUEING.queue_delay_ms(200, 70) == pytest.approx(110)
    assert half.queue_delay_ms(200, 170) == QUEUEING.queue_delay_ms(200, 185) == 0


INSTANCE = {
    "version": 1, "name": "tiny", "fleet": [{"gpu": "a100-80gb"}], "performance": "parvagpu-a100",
    "workloads": [{"name": "a", "model": "resnet50", "slo_ms": 200, "rate_rps": 100}],
}


@pytest.mark.parametrize("policy", [{}, {"safety": 0.9}])
def test_queueing_is_the_default_of_version_2(policy):
    """Files of version 1 that name no rule keep theirs; whatever is named counts in both."""
    first, second = (provision.Instance(**INSTANCE | {"version": one, "policy": policy}) for one in (1, 2))
    assert (first.policy.latency_budget, second.policy.latency_budget) == ("half_slo", "queueing")
    named = policy | {"latency_budget": "half_slo"}
    assert provision.Instance(**INSTANCE | {"version": 2, "policy": named}).policy == first.policy
    assert provision.Instance(**INSTANCE | {"policy": named}).digest == first.digest
    assert first.replace(name="other").policy == first.policy


PAPERS = [one for one in shipped_instances() if not one.startswith("mlperf")]


@pytest.mark.parametrize("name", [*PAPERS, "igniter-12-seed0", "inss-seed0"])
def test_instances_of_papers_name_their_rule(name):
    """None of them changes with the default."""
    rule = "full_batches" if name == "inss-six" else "half_slo"
    assert provision.read(name).replace(version=2).policy.latency_budget == rule


REFUSED = {
    "unknown": ({"policy": {"latency_budget": "all"}},
                "should be 'half_slo' or 'full_batches' or 'queueing' (got 'all')"),
    "number": ({"policy": {"latency_budget": 1}}, "should be 'half_slo' or 'full_batches' or 'queueing' (got 1)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_queueing_cannot_judge_is_refused_in_one_line(case, tmp_path, monkeypatch, capsys):
    """Exit code 2 and one line that says what to do."""
    changes, expected = REFUSED[case]
    (tmp_path / "instance.json").write_text(json.dumps(INSTANCE | changes))
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "instance.json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected in captured.err


def test_too_tight_an_slo_names_one_that_works(tmp_path, monkeypatch, capsys):
    """With no batch fast enough, the SLO that the message names is feasible at a low rate."""
    monkeypatch.chdir(tmp_path)

    def solved(slo_ms):
        workload = INSTANCE["workloads"][0] | {"slo_ms": slo_ms, "rate_rps": 0.001}
        changes = {"policy": {"latency_budget": "queueing"}, "workloads": [workload]}
        (tmp_path / "instance.json").write_text(json.dumps(INSTANCE | changes))
        return main(["solve", "instance.json"])

    assert solved(1) == 1
    captured = capsys.readouterr()
    enough = float((captured.out + captured.err).split("; slo_ms ")[1].split()[0])
    assert solved(enough) == 0
    assert solved(enough * 0.99) == 1

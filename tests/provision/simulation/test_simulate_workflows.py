"""Workflows replayed: stages one after another, workloads of a stage at once, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replayed_plans import piece_of, plan_of, table

import provision
from provision.models.problem.workflow import Workflow
from provision.models.problem.workload import Workload


def chain(*stages, rate_rps=20.0, slo_ms=100.0):
    """An instance of one workflow on whole T4s, whose model takes 10 ms for a request and 20 ms for four."""
    names = [name for stage in stages for name in stage]
    workloads = [Workload(name=name, model="m", slo_ms=slo_ms, rate_rps=rate_rps) for name in names]
    return table().replace(workloads=workloads, workflows=[Workflow(name="all", stages=stages)])


def alone(instance, batch=1, copies=1):
    """A plan with GPUs of its own for every workload."""
    pieces = [piece_of("whole", (one.name, batch, 1, one.rate_rps / copies)) for one in instance.workloads] * copies
    return plan_of(instance, *pieces, gpu="t4", mig=False)


def replayed(instance, plan, seconds=20, **options):
    """The workflow of a report, and its workloads by name."""
    report = provision.simulate(instance, plan, seconds, **options)
    [whole] = report.workflows
    return whole, {one.workload: one for one in report.workloads}


def test_stages_add_up_and_the_slowest_of_a_stage_counts():
    """10 ms, then 10 and 20 ms at once: one waits 10 ms for its batch to fill."""
    instance = chain(["first"], ["quick", "slow"], slo_ms=60.0)
    pieces = [piece_of("whole", (name, batch, 1, 20.0)) for name, batch in (("first", 1), ("quick", 1), ("slow", 4))]
    whole, _ = replayed(instance, plan_of(instance, *pieces, gpu="t4", mig=False), arrival_cv=0.0)
    # A batch of four takes 20 of its 30 ms: a request waits 10 for others, then is served alone.
    assert (whole.p50.mean_ms, whole.p999.mean_ms, whole.slo_ms) == pytest.approx((30.0, 30.0, 120.0), abs=1e-5)
    assert whole.arrived == whole.served + whole.in_flight == 400


def test_a_workload_waits_for_all_answers_that_it_needs():
    """``last`` needs the first answer and that of ``aside``: the longest path counts, for the latency and the SLO."""
    instance = chain(["first"], ["aside"], ["last"], ["free"]).replace(
        workflows=[Workflow(name="all", edges=[("first", "aside"), ("first", "last"), ("aside", "last"),
                                               ("first", "free")])])
    whole, stages = replayed(instance, alone(instance), arrival_cv=0.0)
    assert (whole.p50.mean_ms, whole.p999.mean_ms, whole.slo_ms) == (30.0, 30.0, 300.0)
    assert {one.arrived for one in stages.values()} == {400}


@pytest.mark.parametrize("seed", range(2))
def test_stages_are_edges_from_all_to_all(seed):
    instance = chain(["a"], ["b", "c"], ["d"], rate_rps=70.0)
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    same = instance.replace(workflows=[Workflow(name="all", edges=edges)])
    assert replayed(instance, alone(instance), 5, seed=seed) == replayed(same, alone(same), 5, seed=seed)


def test_nobody_waits_behind_a_queue_of_the_same_service():
    """After a queue with constant service of one request at a time the next stage, as quick, finds nobody waiting."""
    instance = chain(["first"], ["second"], ["third"], rate_rps=80.0, slo_ms=500.0)
    whole, stages = replayed(instance, alone(instance))
    assert stages["first"].p99.mean_ms > 30
    for name in ("second", "third"):
        assert stages[name].p50.mean_ms == stages[name].p999.mean_ms == 10.0
    for level in ("p50", "p95", "p99"):
        assert getattr(whole, level).mean_ms == pytest.approx(getattr(stages["first"], level).mean_ms + 20)


def test_a_batch_arrives_at_the_next_stage_at_once():
    """Four are answered together, so that the fourth waits for three services of the next stage."""
    instance = chain(["first"], ["second"], rate_rps=40.0, slo_ms=400.0)
    pieces = [piece_of("whole", ("first", 4, 1, 40.0)), piece_of("whole", ("second", 1, 1, 40.0))]
    plan = plan_of(instance, *pieces, gpu="t4", mig=False)
    _, stages = replayed(instance, plan, arrival_cv=0.0, max_delay_ms=1000.0)
    assert stages["first"].mean_batch == 4
    assert stages["second"].p50.mean_ms == 20 and stages["second"].p99.mean_ms == 40


def test_answers_before_the_process_is_free_move_on_when_it_is():
    """A measured latency of 5 ms where the throughput says 10: the next stage begins after 10."""
    instance = chain(["first"], ["second"])
    [tables] = instance.performance
    early = tables.model_dump() | {"models": {"m": {"points": [("whole", 1, 1, 100.0, 5.0)]}}}
    instance = instance.replace(performance=[type(tables).model_validate(early)])
    whole, stages = replayed(instance, alone(instance), arrival_cv=0.0)
    assert stages["first"].p999.mean_ms == 5.0 and whole.p999.mean_ms == 15.0


def test_a_workflow_of_one_workload_is_that_workload():
    """Also over two replicas; and the requests are those of the instance without workflows."""
    instance = chain(["only"], rate_rps=100.0)
    plan = alone(instance, batch=4, copies=2)
    whole, stages = replayed(instance, plan, seed=4)
    assert whole.tail_ms == stages["only"].tail_ms and whole.violation_rate == stages["only"].violation_rate
    [bare] = provision.simulate(instance.replace(workflows=()), plan, 20, seed=4).workloads
    assert bare == stages["only"]


@settings(max_examples=25)
@given(seed=st.integers(0, 99), batch=st.sampled_from([1, 4]), copies=st.integers(1, 3), rate_rps=st.floats(1, 150),
       arrival_cv=st.sampled_from([0.0, 1.0, 2.0]))
def test_no_request_is_lost_between_stages(seed, batch, copies, rate_rps, arrival_cv):
    """Every request passes every stage, whatever the replicas, and no faster than its slowest part."""
    instance = chain(["a", "b"], ["c"], ["d", "e"], rate_rps=rate_rps)
    plan = alone(instance, batch, copies)
    whole, stages = replayed(instance, plan, 2, seed=seed, arrival_cv=arrival_cv)
    assert {one.arrived for one in stages.values()} == {whole.arrived}
    assert all(one.arrived == one.served + one.in_flight for one in (whole, *stages.values()))
    assert whole.served <= min(one.served for one in stages.values())
    if whole.offered_rps:
        assert whole.p50.mean_ms >= 30
    assert (whole, stages) == replayed(instance, plan, 2, seed=seed, arrival_cv=arrival_cv)


def test_stages_that_take_turns_with_each_other():
    """gpu-lets' traffic on one GPU: under constant arrivals the whole keeps the sum of its stages."""
    instance = provision.read("gpulets-traffic")
    plan = provision.solve(instance, "gpulets").plan
    whole, stages = replayed(instance, plan, 10)
    assert whole.slo_ms == 136.0 and whole.workload == "traffic"
    assert whole.p99.mean_ms > max(one.p99.mean_ms for one in stages.values())
    report = provision.simulate(instance, plan, 5)
    whole = report.workflows[0]
    assert report.late and ("traffic" in report.late) == (whole.p99.mean_ms > whole.slo_ms)
    assert report.summary()["workflows"][0]["workload"] == "traffic"


def test_workflows_do_not_change_what_other_instances_are():
    """The digest of an instance without workflows says nothing of them; with them it does."""
    instance = chain(["a"], ["b"])
    bare = instance.replace(workflows=())
    assert bare.digest != instance.digest != chain(["a", "b"]).digest
    assert "workflows" not in bare.model_dump(exclude_defaults=True)


@pytest.mark.parametrize(("stages", "problem"), [
    ([["a"], ["z"]], "workflows: no workload 'z'; there is a, b"),
    ([["a"], ["b", "a"]], "workflows: 'a' stands in 2 stages; give each a workload of its own"),
])
def test_wrong_stages_are_refused(stages, problem):
    with pytest.raises(ValueError, match=problem):
        chain(["a"], ["b"]).replace(workflows=[Workflow(name="all", stages=stages)])


@pytest.mark.parametrize(("given", "problem"), [
    ({"edges": [("a", "b"), ("b", "c"), ("c", "b")]}, "edges: lead in a circle: b -> c -> b; leave out one of them"),
    ({"edges": [("a", "a")]}, "a -> a"),
    ({}, "give one of them"),
    ({"edges": [("a", "b")], "stages": [["a"], ["b"]]}, "give one of them"),
])
def test_wrong_edges_are_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        Workflow(name="all", **given)


@pytest.mark.parametrize("options", [{"queue_limit": 5}, {"shadow": True}])
def test_options_that_know_no_stages_are_refused(options):
    instance = chain(["a"], ["b"])
    with pytest.raises(provision.InputError, match=f"simulate: {next(iter(options))} is not for instances with workf"):
        provision.simulate(instance, alone(instance), 1, **options)


def test_unequal_rates_and_missing_replicas_are_refused():
    instance = chain(["a"], ["b"])
    a, b = instance.workloads
    unequal = instance.replace(workloads=(a, b.model_copy(update={"rate_rps": 5.0})))
    with pytest.raises(provision.InputError, match="their rates are 5, 20 requests/s; give all the same"):
        provision.simulate(unequal, alone(instance), 1)
    for refused in (lambda: provision.solve(unequal, "greedy"), lambda: provision.verify(unequal, alone(instance))):
        with pytest.raises(provision.InputError, match=r"workflow all: .* their rates are 5, 20 requests/s"):
            refused()
    plan = alone(instance)
    with pytest.raises(provision.InputError, match="workflow all: b has no replica"):
        provision.simulate(instance, plan.model_copy(update={"gpus": plan.gpus[:1]}), 1)

"""Plans with variants: the model that a replica runs reaches whoever draws, replays, exports, applies or replans."""

import pytest
from drawn_variants import with_variants
from prometheus_server import answering, vector

import provision
from provision.applier.target import Commands, gpu_layout
from provision.draw.drawing import Drawing
from provision.draw.page import render_page
from provision.exporters.common import render
from provision.models.base.errors import InputError
from provision.models.plans.disturbance import disturbance
from provision.models.problem.prediction import predict_slice
from provision.replanning.prometheus import rates_now
from provision.replanning.replan import replan
from provision.simulation.deployment import deploy


@pytest.fixture(scope="module")
def whole():
    """The shipped instance, whose replicas share GPUs, and its plan."""
    instance = provision.read("igniter-variants-12")
    return instance, provision.solve(instance, "master").plan


@pytest.fixture(scope="module")
def sliced():
    """ParvaGPU's second scenario where every model may stand for others, and its plan: some replicas run variants."""
    instance = with_variants(provision.read("parvagpu-s2"), 1)
    plan = provision.solve(instance, "master").plan
    assert any(replica.model for *_, replica in plan.replicas())
    return instance, plan


def first_varied(plan):
    """The first replica of a plan that runs a variant, with its GPU, its slice's position and its slice."""
    return next(found for found in plan.replicas() if found[-1].model)


@pytest.mark.parametrize("to", ["triton", "kubernetes", "shell"])
def test_exports_name_the_model_that_runs(to, whole):
    instance, plan = whole
    text = "\n".join(render(plan, to, instance).values())
    for *_, replica in plan.replicas():
        assert instance.model_of(replica) in text
    idle = {one for workload in instance.workloads for one in workload.variants}
    idle -= {replica.model for *_, replica in plan.replicas()}
    assert not any(model in text for model in idle)


def test_a_deployment_map_has_no_variants(sliced):
    with pytest.raises(InputError, match=r"parvagpu: GPU \d+, slice \d+: runs .*has no variants of a workload"):
        render(sliced[1], "parvagpu", sliced[0])


def test_servers_are_told_the_model(sliced):
    instance, plan = sliced
    at, position, piece, replica = first_varied(plan)
    made = gpu_layout(plan.gpus[at], "-", Commands()).slices[position].replicas[0]
    assert made.environment["PROVISION_MODEL"] == replica.model
    default = {one.name: one.model for one in instance.workloads}
    assert Commands("serve {model}", default).command(replica, piece.profile) == f"serve {replica.model}"
    plain = replica.model_copy(update={"model": None})
    assert Commands("serve {model}", default).command(plain, piece.profile) == f"serve {default[replica.workload]}"


def test_a_change_of_variant_starts_a_replica_anew(sliced):
    plan = sliced[1]
    at, position, piece, replica = first_varied(plan)
    other = piece.model_copy(update={"replicas": (replica.model_copy(update={"model": None}),)})
    slices = plan.gpus[at].slices
    gpu = plan.gpus[at].model_copy(update={"slices": (*slices[:position], other, *slices[position + 1 :])})
    changed = plan.model_copy(update={"gpus": (*plan.gpus[:at], gpu, *plan.gpus[at + 1 :])})
    assert disturbance(plan, plan).replicas_started == 0
    assert disturbance(plan, changed).replicas_started == disturbance(changed, plan).replicas_started == 1


def test_replanning_keeps_what_runs_and_starts_what_is_best(sliced):
    instance, plan = sliced
    same = replan(instance, plan)
    assert same.report.ok and same.changes.replicas_started == 0
    more = replan(instance.replace(workloads=tuple(
        one.model_copy(update={"rate_rps": 1.5 * one.rate_rps}) for one in instance.workloads
    )), plan)
    assert more.report.ok and more.changes.replicas_started > 0
    gone = instance.replace(workloads=tuple(one.model_copy(update={"variants": ()}) for one in instance.workloads))
    assert replan(gone, plan).report.ok and replan(gone, plan).changes.replicas_started > 0


@pytest.mark.parametrize("which", ["whole", "sliced"])
def test_replays_run_the_variant(which, request):
    """Batches take what the verifier predicts for the model that runs, and something else for the workload's first."""
    instance, plan = request.getfixturevalue(which)
    at, _, piece, replica = first_varied(plan)
    plain = tuple(one.model_copy(update={"model": None}) for one in piece.replicas)
    pieces = piece, piece.model_copy(update={"replicas": plain})
    gpus = tuple(plan.gpus[at].model_copy(update={"slices": (one,)}) for one in pieces)
    index = piece.replicas.index(replica)
    varied, first = (one.times.latency_ms[-1, index, replica.batch]
                     for one in deploy(instance, plan.model_copy(update={"gpus": gpus})).slices)
    assert varied == pytest.approx(predict_slice(instance, plan.gpus[at].gpu, piece)[index].latency_ms)
    assert varied != pytest.approx(first, rel=1e-3)
    found = provision.simulate(instance, plan, seconds=3, seed=1)
    assert all(one.served for one in found.workloads)


def test_drawings_name_variants(whole):
    instance, plan = whole
    drawing, replica = Drawing(plan, instance), first_varied(plan)[-1]
    assert drawing.varied and not Drawing(plan.model_copy(update={"gpus": ()}), instance).varied
    assert {one.name: one.model for one in drawing.workloads}[replica.workload] == replica.model
    assert f"runs {replica.model}" in render_page(plan, instance)


def test_rates_of_variants_add_up(sliced):
    """Two models that one workload alone may run, measured by model; one that several may run tells nothing."""
    instance = provision.read("parvagpu-s2")
    first, second = instance.workloads[:2]
    varied = instance.replace(workloads=(first.model_copy(update={"name": "mine", "variants": (second.model,)}),))
    server, url = answering(vector((first.model, "12.5"), (second.model, "3")))
    assert rates_now(url, varied) == {"mine": 15.5}
    both = varied.replace(workloads=(*varied.workloads, second.model_copy(update={"name": "other"})))
    with pytest.raises(InputError, match="no workload"):
        rates_now(url, both)
    server.shutdown()

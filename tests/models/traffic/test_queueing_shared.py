"""Plans under ``queueing`` where slices are shared, and for most throughput: proven, and nobody late in replays."""

import pytest
from pydantic import ValidationError

import provision
from provision.models.problem.prediction import predict_slice
from provision.solving.replayed import replayed


def small(count, **changes):
    """Workloads of little traffic on A100s, whose slices they may share."""
    models = ("resnet50", "mobilenetv2", "densenet121", "inceptionv3")
    rows = [{"name": f"w{at}", "model": models[at % len(models)], "slo_ms": 300.0, "rate_rps": 5.0}
            for at in range(count)]
    return provision.Instance(**{"version": 2, "name": "small", "fleet": [{"gpu": "a100-80gb"}],
                                 "performance": "parvagpu-a100", "workloads": rows,
                                 "policy": {"share_slices": True}} | changes)


@pytest.fixture(scope="module")
def nine():
    """The plan of nine workloads."""
    return provision.solve(small(9))


def test_shared_slices_hold_in_replays(nine):
    """Nine workloads need two GPUs alone and one shared; batches stay below their bound, requests inside the SLO."""
    found = nine
    assert (found.status, found.objective, found.replay.late) == ("optimal", 1, ())
    assert any(len(piece.replicas) > 1 for gpu in found.plan.gpus for piece in gpu.slices)
    assert all(one.p99_ms <= one.budget_ms for one in found.report.predictions)
    assert provision.solve(small(9, policy={})).objective == 2


def test_a_shared_slice_has_the_longest_batches_whatever_is_routed(nine):
    """Predictions do not depend on rates, and are those of nobody who shares less."""
    instance = small(2)
    gpu, piece = next((gpu.gpu, piece) for gpu in nine.plan.gpus for piece in gpu.slices if len(piece.replicas) > 1)
    both = piece.model_copy(update={"replicas": tuple(
        one.model_copy(update={"workload": f"w{at}", "model": None, "batch": 4, "processes": 1})
        for at, one in enumerate(piece.replicas[:2]))})
    idle = both.model_copy(update={"replicas": tuple(
        one.model_copy(update={"rate_rps": 0.0}) for one in both.replicas)})
    assert predict_slice(instance, gpu, both) == predict_slice(instance, gpu, idle)
    means = predict_slice(instance.replace(policy={"latency_budget": "half_slo", "share_slices": True}), gpu, both)
    assert all(longest.latency_ms > mean.latency_ms
               for longest, mean in zip(predict_slice(instance, gpu, both), means, strict=True))


@pytest.fixture(scope="module")
def turning():
    """gpu-lets' first scenario under queueing, with its plan."""
    instance = provision.read("gpulets-equal")
    instance = instance.with_policy(latency_budget="queueing")
    return instance, provision.solve(instance)


def test_turns_hold_in_replays(turning):
    """Two GPUs, proven, with turns on them; no request is later than its bound at further seeds."""
    instance, found = turning
    assert (found.status, found.objective) == ("optimal", 2)
    assert any(replica.turn is not None for *_, replica in found.plan.replicas())
    assert not found.replay.late and not replayed(instance, found.plan, 31).late


def test_turns_that_take_more_than_they_may_are_refuted(turning):
    """Twice the rate on a replica that takes turns: the verifier names its P99."""
    instance, found = turning
    many = instance.replace(workloads=[one.model_copy(update={"rate_rps": 2 * one.rate_rps})
                                       for one in instance.workloads])
    gpus = tuple(gpu.model_copy(update={"slices": tuple(
        piece.model_copy(update={"replicas": tuple(
            one.model_copy(update={"rate_rps": 2.5 * one.rate_rps}) for one in piece.replicas)})
        for piece in gpu.slices)}) for gpu in found.plan.gpus)
    report = provision.verify(many, found.plan.model_copy(update={"gpus": gpus}))
    assert any(one.kind == "latency" and "P99" in one.message for one in report.violations)


def test_methods_for_constant_arrivals_refuse_turns(turning):
    with pytest.raises(provision.UnsupportedError, match="auto, master or greedy, or latency_budget half_slo"):
        provision.solve(turning[0], "gpulets")


@pytest.mark.parametrize("name", ["parvagpu-s1", "inss"])
def test_most_throughput_counts_what_keeps_the_percentile(name):
    """The objective is the rates at which replicas keep it: below their throughput, and no more than the bound."""
    plain = provision.read(name)
    policy = plain.policy.model_copy(update={"latency_budget": "queueing"})
    rows = [one.model_copy(update={"max_replicas": None, "rate_rps": one.rate_rps / 5}) for one in plain.workloads]
    fleet = [plain.fleet[0].model_copy(update={"count": 3})]
    instance = plain.replace(objective="max_throughput", policy=policy, workloads=rows, fleet=fleet)
    found = provision.solve(instance, time_limit_s=4, replay=False)
    assert found.verified and found.objective <= found.bound * (1 + 1e-6)
    assert found.objective < sum(one.throughput_rps for one in found.report.predictions)
    if name == "parvagpu-s1":
        assert found.status == "optimal"


def test_most_throughput_of_turns_is_refused(turning):
    with pytest.raises(ValidationError, match="max_throughput on gpu-lets' turns takes no queueing"):
        turning[0].replace(objective="max_throughput")

"""The second verifier: it stands alone, its equations and queues give known numbers, and its verdicts are true."""

import ast
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from combined import random_combination
from token_instances import CHAT, chat
from token_instances import instance as token_instance

from provision import solve
from provision.instances.ledger.ledger import ledger
from provision.instances.read import shipped, shipped_instances
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.traffic.arrivals import Renewal
from provision.verification import independent
from provision.verification.independent.judge import judge
from provision.verification.independent.kinds.service import services
from provision.verification.independent.layout import layout_faults
from provision.verification.independent.reading import instance_of, plan_of, read_instance, read_tree
from provision.verification.independent.records import PlannedGpu, Slice
from provision.verification.independent.replays.arrivals import arrival_times, dealt
from provision.verification.independent.replays.late import judged
from provision.verification.independent.replays.queues import batched, fewest, least_loaded, shared, turns
from provision.verification.independent.replays.token_engine import replayed
from provision.verification.independent.tokens import lengths
from provision.verification.second import second_opinion, shelf
from provision.verification.verify import verify

ROOM = Path(independent.__file__).parent
AUDIT = Path(__file__).parents[4] / "shared/data/audit"
ALLOWED = ("numba", "numpy", "scipy", "yaml")
PATIENT_S = 120.0
"""Seconds of CPU for replays: a slow machine must not leave open what a fast one decides."""


# It stands alone.


def test_imports_nothing_of_the_package():
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [] if node.level else [node.module]
                assert node.level <= len(path.relative_to(ROOM).parts), path.name
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                assert name == "provision.models.base.errors" or top in ALLOWED or top in sys.stdlib_module_names


def test_no_string_names_a_module_of_the_package():
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "provision." not in node.value and "import_module" not in node.value, path.name


def test_loads_nothing_of_the_package():
    code = "import sys, provision.verification.independent.judge, provision.verification.independent.reading\n" \
           "print(*[one for one in sys.modules if one.startswith('provision')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = "provision.verification.independent"
    base = {"provision", "provision.verification", "provision.models", "provision.models.base",
            "provision.models.base.errors"}
    assert {one for one in loaded if not one.startswith(own)} <= base


# Equations.


def _slice(gpu, replicas, profile="whole", start=0, mig=False):
    return {"version": 1, "instance": "x", "gpus": [{"gpu": gpu, "mig": mig, "slices": [
        {"profile": profile, "start": start, "replicas": replicas}]}]}


def _services(instance, plan):
    (gpu,) = plan_of(plan, instance)
    (piece,) = gpu.slices
    return services(instance.performance, piece)


def test_igniter_as_its_program_predicts():
    """Latencies (ms) and throughputs that iGniter's public program prints for its motivation example."""
    expected = {"vgg19": (0.375, 6, 28.730, 211.50), "resnet50": (0.3, 8, 18.908, 434.15),
                "alexnet": (0.1, 4, 6.918, 599.08)}
    instance = read_instance("igniter-motivation", shelf())
    replicas = [{"workload": name, "batch": batch, "sm_share": share, "rate_rps": 1.0}
                for name, (share, batch, _, _) in expected.items()]
    for one, (_, _, latency, rate) in zip(_services(instance, _slice("v100", replicas)), expected.values(),
                                          strict=True):
        assert one.answer_ms[-1] == pytest.approx(latency, rel=0.005)
        assert one.throughput_rps(1) == pytest.approx(rate, rel=0.005)


def test_measured_tables_between_and_below_points():
    data = {"version": 1, "name": "m", "gpu": "t4", "kind": "measured-segments",
            "models": {"a": {"points": [["whole", 2, 1, 100.0, 30.0], ["whole", 4, 1, 160.0, 26.0]]}}}
    tree = {"version": 2, "name": "x", "fleet": [{"gpu": "t4"}], "performance": data,
            "workloads": [{"name": "a", "model": "a", "slo_ms": 100, "rate_rps": 1}]}
    plan = _slice("t4", [{"workload": "a", "batch": 4, "rate_rps": 1.0}])
    (one,) = _services(instance_of(tree, shelf()), plan)
    assert one.answer_ms.tolist() == [30, 30, 30, 26]
    assert one.hold_ms.tolist() == [20, 20, 25, 25]
    data["between_batches"] = {"mean": 0, "p95": 0, "max": 0, "points": 1, "margin": 0.1}
    (one,) = _services(instance_of(tree, shelf()), plan)
    assert one.answer_ms == pytest.approx([30, 30, 28 * 1.1, 26])


def test_network_of_one_process_is_host_and_slice_time():
    instance = read_instance("parvagpu-s1", shelf())
    replica = {"workload": "bert", "batch": 4, "rate_rps": 1.0}
    (one,) = _services(instance, _slice("a100-80gb", [replica], "1g.10gb", 0, True))
    of = instance.performance[0]["models"]["bert"]["coefficients"]
    work = of["gpu_fixed_ms"] + of["gpu_per_item_ms"] * 4 ** of["batch_exponent"]
    assert one.answer_ms[-1] == pytest.approx(
        4 * of["host_per_item_ms"] + (work**5 + of["launch_ms"]**5) ** 0.2, rel=1e-12)
    (five,) = _services(instance, _slice("a100-80gb", [replica | {"processes": 5}], "1g.10gb", 0, True))
    assert five.answer_ms[-1] >= (5 - of["queueing"]) * work


# Placements.


def test_placements_of_an_a100_are_nvidias():
    """298 states of the five profiles, 19 of them maximal."""
    instance = read_instance("parvagpu-s1", shelf())
    places = [(name, start) for name, starts in (
        ("1g.10gb", range(7)), ("2g.20gb", (0, 2, 4)), ("3g.40gb", (0, 4)), ("4g.40gb", (0,)), ("7g.80gb", (0,)))
        for start in starts]

    def stands(chosen):
        slices = tuple(Slice(0, "a100-80gb", True, name, start, ()) for name, start in chosen)
        return not list(layout_faults(instance, (PlannedGpu("a100-80gb", True, slices),)))

    found = {frozenset(one) for many in range(8) for one in combinations(places, many) if stands(one)}
    assert len(found) == 298
    assert sum(not any(one < other for other in found) for one in found) == 19


# Queues.


def _poisson(rate_per_ms, many, seed=0):
    return arrival_times({"process": "poisson"}, 1000 * rate_per_ms, many, np.random.default_rng(seed))


def test_waits_of_a_single_server_are_those_of_md1():
    arrived = _poisson(0.07, 400_000)
    answer = np.array([10.0])
    mean_ms = 10 + 0.7 * 10 / (2 * 0.3)
    alone = batched(arrived, answer, answer, 1, 0.0)
    assert np.mean(alone - arrived) == pytest.approx(mean_ms, rel=0.02)
    some = arrived[:20_000]
    for ended in (turns(some, np.zeros(len(some), np.int64), answer[None], np.array([1])),
                  least_loaded(some, answer[None], answer[None], np.array([1]), np.array([1]), np.zeros(1),
                               np.ones(1))):
        np.testing.assert_allclose(ended, alone[: len(some)], rtol=1e-12)


def test_processor_sharing_is_insensitive():
    """The mean response of a shared server is S / (1 - utilisation), host times being waits beside it."""
    arrived = _poisson(0.06, 100_000)
    ended = shared(arrived, np.zeros(len(arrived), np.int64), np.array([[3.0]]), np.array([[10.0]]), np.array([1]),
                   np.zeros(200, np.int64), np.zeros(1))
    assert np.mean(ended - arrived) == pytest.approx(3 + 10 / 0.4, rel=0.03)


def test_fewest_requests_are_counted_per_weight_and_ties_take_turns():
    """As nginx's least_conn: the idle replica first; among idle ones in proportion to weights; none to weight 0."""
    weight, credit = np.array([3.0, 0.0, 1.0]), np.zeros(3)
    assert fewest(np.array([3.0, 0.0, 0.0]), weight, credit) == 2
    assert fewest(np.array([2.0, 0.0, 1.0]), weight, credit) == 0
    credit = np.zeros(3)
    among_idle = [fewest(np.zeros(3), weight, credit) for _ in range(400)]
    assert np.bincount(among_idle, minlength=3).tolist() == [300, 0, 100]


def test_batches_start_when_full_or_when_the_first_has_waited():
    arrived, times = np.array([0.0, 1.0, 2.0, 3.0, 30.0]), np.array([4.0, 6.0])
    assert batched(arrived, times, times, 1, 5.0).tolist() == [7, 7, 13, 13, 39]
    assert batched(arrived, times, times, 2, 5.0).tolist() == [7, 7, 9, 9, 39]


def test_requests_are_dealt_by_weights():
    rng, weights = np.random.default_rng(0), np.array([1.0, 2.0, 5.0])
    for routing in ("random", "round_robin"):
        parts = np.bincount(dealt(80_000, weights, routing, rng)) / 80_000
        assert parts == pytest.approx(weights / 8, abs=0.01)
    first = dealt(8, weights, "round_robin", rng)
    assert np.bincount(first).tolist() == [1, 2, 5]


@pytest.mark.parametrize("process", [
    {"process": "renewal", "cv": 2.0}, {"process": "renewal", "cv": 0.0},
    {"process": "mmpp", "high_over_mean": 4, "high_share": 0.2, "mean_high_s": 0.2}])
def test_arrivals_have_their_rate_and_spread(process):
    times = arrival_times(process, 500.0, 400_000, np.random.default_rng(1))
    gaps = np.diff(times)
    assert 1000 / gaps.mean() == pytest.approx(500, rel=0.03)
    if "cv" in process:
        assert gaps.std() / gaps.mean() == pytest.approx(process["cv"], rel=0.03, abs=1e-9)
    else:
        assert gaps.std() / gaps.mean() > 1.2


def test_a_verdict_is_given_only_when_sure():
    def replay(part):
        return lambda seed, requests: [(int(np.random.default_rng(seed).binomial(requests, part)), requests)]

    for part, verdict in ((0.0, "holds"), (0.009, "holds"), (0.011, "violated"), (0.5, "violated")):
        (late,) = judged(replay(part), [0.01], 4096, 10.0)
        assert late.verdict == verdict
        assert late.low <= part <= late.high
    (late,) = judged(replay(0.01), [0.01], 256, 0.0)
    assert late.verdict == "not decided"


def _answered(arrived, prompt, output, costs, limits, begun=None, cached=False, alone=0, ahead=0):
    """The first and last tokens of requests at one server."""
    none = np.zeros(len(arrived), np.int64)
    return replayed(arrived, prompt, output, none if begun is None else begun, none, cached, none, np.ones(1),
                    costs[None], np.append(limits, (alone, ahead))[None])


def test_tokens_of_two_requests():
    """The second prompt is computed beside the first one's second token."""
    costs = np.zeros(17)
    costs[0], costs[2], costs[11] = 1.0, 0.1, 0.5  # step, token, delivery
    limits = np.array([100, 16, 8, 64])
    arrived, prompt, output = np.array([0.0, 0.5]), np.array([10, 20]), np.array([3, 1])
    first, last = _answered(arrived, prompt, output, costs, limits)
    assert first == pytest.approx([2.5, 2.0 + 1 + 2.1 + 0.5])
    assert last == pytest.approx([5.1 + 1.1 + 0.5, 5.1 + 0.5])
    first, _ = _answered(arrived, prompt, output, costs, limits, np.array([0, 16]))
    assert first == pytest.approx([2.5, 2.0 + 1 + 0.5 + 0.5])


def test_launching_bounds_iterations_with_long_prompts():
    costs, limits = np.zeros(17), np.array([1000, 16, 8, 8192])
    costs[0], costs[15] = 1.0, 50.0  # step, launch
    first, last = _answered(np.array([0.0, 200.0]), np.array([600, 500]), np.array([3, 1]), costs, limits)
    assert first == pytest.approx([50.0, 201.0]) and last[0] == pytest.approx(52.0)


def test_requests_of_a_decode_pool_come_with_their_prompt():
    """Two requests decode two further tokens each; a prompt of 20 tokens costs nothing."""
    costs = np.zeros(17)
    costs[0], costs[2] = 1.0, 0.1  # step, token
    _, last = _answered(np.array([0.0, 0.5]), np.array([20, 20]), np.array([3, 3]), costs, np.array([100, 16, 8, 64]),
                        np.array([20, 20]), cached=True)
    assert last == pytest.approx([1.1 + 1.2, 1.1 + 1.2 + 1.1])


def test_prompts_alone_hold_up_further_tokens():
    """The first request's second token waits until the second prompt is done."""
    costs = np.zeros(17)
    costs[0], costs[2] = 1.0, 0.1
    both = [_answered(np.array([0.0, 0.5]), np.array([10, 20]), np.array([2, 1]), costs, np.array([100, 16, 8, 64]),
                      alone=alone)[1] for alone in (0, 1)]
    assert both[0] == pytest.approx([2.0 + 3.1, 5.1]) and both[1] == pytest.approx([2.0 + 3.0 + 1.1, 5.0])


def test_scheduled_ahead_makes_late_requests_wait_for_an_iteration_more():
    """The second request comes while the first one's prompt is computed; its iteration is the third, not the second."""
    costs, limits = np.zeros(17), np.array([100, 16, 8, 64])
    costs[0] = 2.0  # step
    arrived, prompt, output = np.array([0.0, 0.5, 20.5]), np.array([10, 20, 20]), np.array([4, 2, 1])
    first, last = _answered(arrived, prompt, output, costs, limits, ahead=1)
    assert first.tolist() == [2.0, 6.0, 22.5] and last.tolist() == [8.0, 8.0, 22.5]
    first, _ = _answered(arrived, prompt, output, costs, limits)
    assert first.tolist() == [2.0, 4.0, 22.5]


def test_short_memory_only_delays():
    costs, many = np.zeros(17), 30
    costs[0] = 1.0
    prompt, output = np.full(many, 20), np.full(many, 30)
    ample = _answered(np.zeros(many), prompt, output, costs, np.array([10_000, 16, 64, 4096]))
    tight = _answered(np.zeros(many), prompt, output, costs, np.array([8, 16, 64, 4096]))
    assert np.isfinite(tight[1]).all()
    assert tight[1].max() > ample[1].max()


def test_lengths_have_the_stated_mean_and_percentile():
    drawn = lengths({"mean": 800, "p99": 2000}, 400_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(800, rel=0.01)
    assert np.percentile(drawn, 99) == pytest.approx(2000, rel=0.02)


# Verdicts.


@pytest.mark.parametrize("name", [one for one in shipped_instances() if "mlperf" not in one])
def test_best_known_plans_hold_for_both(name):
    plan = ledger()[name].plan
    found = second_opinion(name, plan, PATIENT_S)
    assert (found.verdict, found.faults, found.open) == ("holds", [], [])
    report = verify(shipped(name), plan)
    assert report.ok
    assert (report.gpus, report.cost_per_hour) == (found.gpus, pytest.approx(found.cost_per_hour))


@pytest.mark.parametrize("seed", range(8))
def test_both_agree_on_random_instances(seed):
    instance = random_combination(seed, every=True)
    plan = solve(instance, time_limit_s=0.5, replay=False).plan
    if plan is not None:
        held, verdict = _both(instance, plan)
        assert verdict == ("holds" if held else "violated")


def _changed(tree, change):
    gpu = tree["gpus"][0]
    change(tree, gpu, gpu["slices"][0], gpu["slices"][0]["replicas"][0])
    return tree


@pytest.mark.parametrize("change, says", [
    (lambda plan, gpu, piece, one: one.update(rate_rps=one["rate_rps"] * 0.9), "are routed"),
    (lambda plan, gpu, piece, one: gpu["slices"].append(dict(piece)), "is taken"),
    (lambda plan, gpu, piece, one: piece.update(start=7), "no such profile or placement"),
    (lambda plan, gpu, piece, one: gpu.update(mig=False), "not in the fleet"),
    (lambda plan, gpu, piece, one: one.update(batch=256), "a batch takes"),
    (lambda plan, gpu, piece, one: one.update(workload="who"), "no such workload"),
    (lambda plan, gpu, piece, one: one.update(model="vgg16"), "not its model"),
])
def test_broken_plans_are_violated(change, says):
    tree = ledger()["parvagpu-s1"].plan.model_dump(mode="json")
    instance = read_instance("parvagpu-s1", shelf())
    found = judge(instance, plan_of(_changed(tree, change), instance))
    assert found.verdict == "violated"
    assert any(says in fault for fault in found.faults)


def test_too_few_gpus_and_replicas_and_memory():
    tree = read_tree(shelf().instances / "parvagpu-s1.yaml")
    tree["fleet"][0]["count"] = 1
    tree["workloads"][0] |= {"min_replicas": 4}
    tree["workloads"][1] |= {"max_replicas": 1}
    tree["workloads"][2] |= {"max_share_per_gpu": 0.4}
    tree["policy"]["even_replicas"] = True
    instance = instance_of(tree, shelf())
    plan = ledger()["parvagpu-s1"].plan.model_dump(mode="json")
    plan["gpus"][1]["slices"][0]["replicas"][0]["rate_rps"] += 1
    plan["gpus"][0]["slices"][0]["replicas"][0].update(processes=5, batch=256)
    faults = "\n".join(judge(instance, plan_of(plan, instance)).faults)
    for says in ("the fleet has 1", "at least 4", "at most 1", "on one GPU", "not the same", "GiB of memory"):
        assert says in faults


def _replica(workload, batch, processes, rate, share=1.0):
    return {"workload": workload, "batch": batch, "processes": processes, "rate_rps": rate, "sm_share": share}


def _audit(name, plan, **how):
    if not AUDIT.is_dir():
        pytest.skip(f"{AUDIT} is not there")
    instance = read_instance(AUDIT / f"{name}.yaml", shelf())
    return judge(instance, plan_of(plan, instance), **how)


def test_audited_single_requests_that_take_longer_than_a_full_batch():
    """A wait that leaves room for the full batch alone makes single requests late; one for the longest does not."""
    plan = _slice("a100-80gb", [_replica("w", 4, 1, 20.0)], "1g.10gb", 6, True)
    late = _audit("r1_unbatched", plan, delay_by="full")
    assert late.verdict == "violated"
    assert late.replays[0].late.part == pytest.approx(0.58, abs=0.02)
    assert _audit("r1_unbatched", plan, delay_by="longest").verdict == "holds"


def test_audited_large_batch_is_late():
    found = _audit("r2_large_batch", _slice("t4", [_replica("ads", 2048, 4, 143.0)]))
    assert found.verdict == "violated"
    assert found.replays[0].late.part == pytest.approx(0.08, abs=0.01)


def test_audited_workflow_is_late_at_its_second_stage():
    plan = {"version": 1, "instance": "bursts", "gpus": [{"gpu": "a100-80gb", "mig": True, "slices": [
        {"profile": "1g.10gb", "start": start, "replicas": [one]} for start, one in (
            (4, _replica("first", 48, 4, 50.0)), (5, _replica("first", 48, 4, 50.0)),
            (6, _replica("second", 6, 1, 100.0)))]}]}
    found = _audit("r5_workflow_bursts", plan)
    assert found.verdict == "violated"
    late = {one.name: one.late.part for one in found.replays}
    assert late["first"] < 0.01 and late["second"] == pytest.approx(0.76, abs=0.03)


def test_audited_slice_is_violated_at_and_above_its_rates():
    for factor in (1.0, 1.05):
        plan = _slice("a100-80gb", [_replica("inc", 3, 1, 47.45774709929831 * factor),
                                    _replica("o", 8, 1, 38.586594899914196)], "1g.10gb", 0, True)
        found = _audit("r6_overroute", plan)
        assert found.verdict == "violated"
        assert any(one.startswith("inc") and "a batch takes" in one for one in found.faults)


AUDITED = {
    "rand-mig": [[(0, "1g.10gb", "a", 6, 1, 160.0), (1, "1g.10gb", "b", 3, 2, 287.6), (2, "1g.10gb", "c", 6, 3, 55.0),
                  (3, "1g.10gb", "d", 4, 1, 76.08), (4, "2g.20gb", "b", 6, 2, 612.4), (6, "1g.10gb", "e", 4, 1, 37.0)],
                 [(4, "3g.40gb", "d", 8, 2, 343.92)]],
    "rand-shared": [[(0, "1g.10gb", "a", 12, 1, 90.0), (1, "1g.10gb", "b", 8, 1, 60.0),
                     (2, "1g.10gb", "c", 6, 1, 120.0), (3, "1g.10gb", "d", 6, 1, 70.0),
                     (4, "1g.10gb", "e", 4, 2, 200.0), (5, "1g.10gb", "f", 16, 1, 15.0)]],
}


@pytest.mark.parametrize("name", AUDITED)
def test_audited_mig_plans_hold(name):
    plan = {"version": 1, "instance": name, "gpus": [
        {"gpu": "a100-80gb", "mig": True, "slices": [
            {"profile": profile, "start": start, "replicas": [_replica(*one)]} for start, profile, *one in gpu]}
        for gpu in AUDITED[name]]}
    assert _audit(name, plan).verdict == "holds"


AUDITED_MPS = {
    "rand-mps": [("t4", [("a", 4, 330.0, 0.2), ("c", 3, 120.0, 0.65)]), ("t4", [("d", 3, 60.0, 0.625)]),
                 ("t4", [("b", 5, 250.0, 0.525)])],
    "rand-coloc": [("v100", [("a", 3, 330.0, 0.1)]), ("v100", [
        *[("b", 2, 250 / 3, 0.125)] * 3, ("d", 2, 60.0, 0.275), ("c", 3, 120.0, 0.35)])],
}


@pytest.mark.parametrize("name", AUDITED_MPS)
def test_audited_mps_plans_hold(name):
    plan = {"version": 1, "instance": name, "gpus": [
        {"gpu": gpu, "mig": False, "slices": [{"profile": "whole", "replicas": [
            _replica(who, batch, 1, rate, share) for who, batch, rate, share in replicas]}]}
        for gpu, replicas in AUDITED_MPS[name]]}
    assert _audit(name, plan).verdict == "holds"


AUDIT_4 = AUDIT / "v4"


@pytest.mark.parametrize("case", ["second/382", "second/318", "second/296", "second/376", "routing/52", "routing/54"])
def test_audited_plans_are_not_refused(case):
    """Replicas without rate, language models without rate, a request in minutes, least-loaded replicas."""
    if not AUDIT_4.is_dir():
        pytest.skip(f"{AUDIT_4} is not there")
    instance = read_instance(AUDIT_4 / f"{case}.yaml", shelf())
    assert judge(instance, plan_of(read_tree(AUDIT_4 / f"{case}.plan.json"), instance)).verdict == "holds"


def _both(instance, plan):
    """Whether the first verifier accepts a plan, and the second verifier's verdict."""
    return verify(instance, plan).ok, second_opinion(instance, plan, PATIENT_S).verdict


def _plan(gpu, *pieces, mig=True):
    return Plan.model_validate({"version": 1, "instance": "x", "gpus": [{"gpu": gpu, "mig": mig, "slices": [
        {"profile": profile, "start": start, "replicas": replicas} for profile, start, replicas in pieces]}]})


def _one(gpu, data, model, slo_ms, rate_rps, **more):
    return Instance.model_validate({"version": 2, "name": "x", "fleet": [{"gpu": gpu}], "performance": [data],
                                    "workloads": [{"name": "w", "model": model, "slo_ms": slo_ms,
                                                   "rate_rps": rate_rps}], **more})


LONE_TURN = _replica("w", 4, 1, 1.0) | {"turn": 0}
REFUSED = {
    "no replica of a workload without rate": (
        _one("a100-80gb", "parvagpu-a100", "bert", 500, 0), _plan("a100-80gb", ("1g.10gb", 0, []))),
    "a turn where data knows none": (
        _one("a100-80gb", "parvagpu-a100", "bert", 500, 1), _plan("a100-80gb", ("1g.10gb", 0, [LONE_TURN]))),
    "two replicas on a slice that is not shared": (
        _one("a100-80gb", "parvagpu-a100", "bert", 500, 1),
        _plan("a100-80gb", ("3g.40gb", 0, [_replica("w", 1, 1, 0.5), _replica("w", 1, 1, 0.5)]))),
    "more routed than full batches carry": (
        _one("a100-80gb", "parvagpu-a100", "bert", 500, 1),
        _plan("a100-80gb", ("1g.10gb", 0, [_replica("w", 1, 1, 1e4)]))),
    "a batch that the data does not list": (
        _one("rtx2080ti", "gpulets-2080ti", "resnet50", 500, 1),
        _plan("rtx2080ti", ("whole", 0, [_replica("w", 31, 1, 1.0)]), mig=False)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_first_refuses_the_second_refuses(why):
    assert _both(*REFUSED[why]) == (False, "violated")


def test_processes_of_a_language_model_are_refused():
    asked = token_instance([chat(rate_rps=5.0)])
    plan = solve(asked, replay=False).plan
    assert _both(asked, plan) == (True, "holds")
    tree = plan.model_dump(mode="json")
    tree["gpus"][0]["slices"][0]["replicas"][0]["processes"] = 8
    assert _both(asked, Plan.model_validate(tree)) == (False, "violated")


@pytest.mark.parametrize("policy, tokens", [
    ({"routing": "round_robin"}, {}), ({"routing": "least_loaded"}, {}),
    ({"arrivals": Renewal(cv=2.0)}, {}), ({}, {"disaggregated": True})])
def test_language_models_are_decided_however_requests_come(policy, tokens):
    asked = token_instance([chat(tokens=CHAT | tokens, rate_rps=120.0)]).with_policy(**policy)
    plan = solve(asked, replay=False).plan
    assert sum(len(gpu.replicas) for gpu in plan.gpus) > 1
    assert _both(asked, plan) == (True, "holds")
    late = asked.replace(workloads=[one.model_copy(update={"slo": one.slo.model_copy(update={
        name: limit / 4 for name, limit in one.slo.model_dump().items() if name.endswith("_ms")})})
        for one in asked.workloads])
    assert second_opinion(late, plan, PATIENT_S).verdict == "violated"

"""Plans replayed: what the simulator makes of instances and plans, and its command line."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replayed_plans import piece_of, plan_of, table

import provision
from provision.cli import main
from provision.models.performance.catalogue import load_performance
from provision.models.problem.prediction import predict_slice
from provision.simulation.latencies import batch_times, network_times

KEYS = {"workload", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "throughput_rps", "violation_rate", "dropped", "slo_ms",
        "arrived", "served", "in_flight", "utilisation", "offered_rps", "mean_batch", "ok", "percentile", "at_slo_ms",
        "p50_ci_ms", "p95_ci_ms", "p99_ci_ms", "p999_ci_ms"}
COUNTS = ("arrived", "served", "dropped", "in_flight")


@pytest.fixture(scope="module")
def testbed():
    """iGniter's testbed with a plan."""
    instance = provision.read("igniter-testbed-12")
    return instance, provision.solve(instance, "igniter").plan


@pytest.fixture(scope="module")
def files(tmp_path_factory, testbed):
    """Plan files: one that holds under constant arrivals, one that cannot."""
    folder = tmp_path_factory.mktemp("plans")
    plan = testbed[1]
    provision.write(plan, folder / "plan.json")
    slow = plan.model_copy(update={"gpus": plan.gpus[:1]})
    provision.write(slow, folder / "slow.json")
    return folder


@pytest.fixture
def run(capsys, files, monkeypatch):
    """Run ``provision simulate igniter-testbed-12`` in the folder of the plans: exit code, stdout, stderr."""
    monkeypatch.chdir(files)

    def command(line):
        try:
            code = main(["simulate", "igniter-testbed-12", *line.split()])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return command


def test_same_seed_same_bits(testbed):
    """The same seed gives the same report to the last bit, another seed does not."""
    one, same, other = (
        provision.simulate(*testbed, seconds=2, seed=seed, replications=2, service_cv=0.3) for seed in (7, 7, 8)
    )
    assert one == same
    assert one.summary()["workloads"] != other.summary()["workloads"]


def test_arrivals_do_not_depend_on_the_plan(testbed):
    """Every plan meets the same requests."""
    instance, plan = testbed
    less = plan.model_copy(update={"gpus": plan.gpus[1:]})
    arrived = [[one.arrived for one in provision.simulate(instance, p, 2, 5).workloads] for p in (plan, less)]
    assert arrived[0] == arrived[1]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1000), seconds=st.floats(0.05, 1), arrival_cv=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    queue_limit=st.none() | st.integers(1, 20), service_factor=st.floats(0.3, 3), service_cv=st.floats(0, 2),
    max_delay_ms=st.none() | st.floats(0, 50),
)
def test_conservation(testbed, seconds, seed, **options):
    """Every request that arrives is served, dropped or in flight at the end; none arrives from nowhere."""
    report = provision.simulate(*testbed, seconds, seed, **options)
    for one in report.workloads:
        assert one.arrived == one.served + one.dropped + one.in_flight
        assert one.dropped == 0 or options["queue_limit"]
        assert 0 <= one.violation_rate <= 1
        assert 0 <= one.utilisation <= 1 + 1e-6
        assert list(one.tail_ms) == sorted(one.tail_ms, key=lambda ms: math.inf if ms is None else ms)


def test_lonely_requests_take_the_predicted_time():
    """Without queueing a request takes what the smallest described batch takes; alone means one busy process."""
    instance = table(rate_rps=0.5)
    plan = plan_of(instance, piece_of("whole", ("w", 4, 2, 0.5)), gpu="t4", mig=False)
    one = provision.simulate(instance, plan, 200, arrival_cv=0.0, max_delay_ms=0.0).workloads[0]
    assert (one.p50.mean_ms, one.p999.mean_ms, one.mean_batch) == (10, 10, 1)
    one = provision.simulate(instance, plan, 200, arrival_cv=0.0, max_delay_ms=7.0).workloads[0]
    assert one.p50.mean_ms == 17
    one = provision.simulate(instance, plan, 200, arrival_cv=0.0).workloads[0]
    assert one.p50.mean_ms == pytest.approx(100 / 2 - 32 + 10, abs=1e-5)


@settings(max_examples=30)
@given(slo_ms=st.integers(40, 400), part=st.integers(100, 900), seed=st.integers(0, 100))
@example(slo_ms=80, part=123, seed=0)
def test_a_batch_that_starts_when_its_delay_ends_is_in_time(slo_ms, part, seed):
    """Requests that wait for a batch to fill until their last moment are answered within the SLO, to the nanosecond."""
    latency_ms = slo_ms * part / 1000
    points = [["whole", 4, 1, 4000 / latency_ms, latency_ms]]
    data = {"version": 1, "name": "t", "gpu": "t4", "kind": "measured-segments", "models": {"m": {"points": points}}}
    instance = provision.Instance.model_validate({
        "version": 2, "name": "tiny", "fleet": [{"gpu": "t4"}], "performance": [data],
        "workloads": [{"name": "w", "model": "m", "slo_ms": slo_ms, "rate_rps": 0.5}],
    }, strict=False)
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 0.5)), gpu="t4", mig=False)
    one = provision.simulate(instance, plan, 200, seed, arrival_cv=0.0).workloads[0]
    assert (one.violation_rate, one.ok) == (0, True)
    assert one.p50.mean_ms == pytest.approx(slo_ms, abs=1e-5)


def test_unknown_small_batches_and_few_processes_are_conservative():
    """A size or a number of processes without data takes what is known of larger ones."""
    instance = table()
    piece = piece_of("whole", ("w", 4, 2, 50.0))
    times = batch_times(instance, "t4", piece)
    assert times.latency_ms[:, 0].tolist() == [[0] * 5, [0, 10, 20, 20, 20], [0, 32, 32, 32, 32]]
    assert times.hold_ms[2, 0, 4] == 1000 * 2 * 4 / 250


def test_neighbours_slow_each_other_only_while_busy(testbed):
    """Beside a neighbour without requests a workload runs as if alone; beside a busy one as both are predicted."""
    instance, _ = testbed
    names = ("vgg19-app3", "resnet50-app3")
    piece = piece_of("whole", (names[0], 1, 1, 1.0, 0.5), (names[1], 1, 1, 1.0, 0.5))
    plan = plan_of(instance, piece, gpu="v100", mig=False)
    alone_ms = predict_slice(instance, "v100", piece_of("whole", (names[0], 1, 1, 1.0, 0.5)))[0].latency_ms
    beside_ms = predict_slice(instance, "v100", piece)[0].latency_ms
    assert beside_ms > 1.01 * alone_ms
    found = []
    for rate in (0.0, 2000.0):
        rates = {names[0]: 3.0, names[1]: rate}
        workloads = tuple(one.model_copy(update={"rate_rps": rates.get(one.name, 0.0)}) for one in instance.workloads)
        report = provision.simulate(instance.replace(workloads=workloads), plan, 10, arrival_cv=0.0, warmup_s=1.0)
        found.append(next(one for one in report.workloads if one.workload == names[0]))
    assert found[0].p50.mean_ms == pytest.approx(alone_ms, abs=1e-5)
    assert found[1].p50.mean_ms == pytest.approx(beside_ms, abs=1e-5)


def test_too_many_combinations_count_as_always_busy(testbed, monkeypatch):
    """Beyond the limit neighbours count as always busy, and the report says so."""
    instance, plan = testbed
    workloads = tuple(one.model_copy(update={"rate_rps": one.rate_rps / 20}) for one in instance.workloads)
    instance = instance.replace(workloads=workloads)
    exact = provision.simulate(instance, plan, 5, arrival_cv=0.0)
    monkeypatch.setattr("provision.simulation.latencies.MOST_PREDICTIONS", 0)
    careful = provision.simulate(instance, plan, 5, arrival_cv=0.0)
    assert not any("always busy" in note for note in exact.notes)
    assert any("always busy" in note for note in careful.notes)
    pairs = list(zip(careful.workloads, exact.workloads, strict=True))
    assert all(one.p50.mean_ms >= other.p50.mean_ms - 1e-6 for one, other in pairs)
    assert any(one.p50.mean_ms > 1.001 * other.p50.mean_ms for one, other in pairs)


def test_stages_of_shared_networks():
    """Think times grow with the processes that launch; slice times are those of a process alone, on the grid."""
    data = load_performance("parvagpu-a100")
    think_ms, slice_ms = network_times(data, 3, [("bert", 48), ("vgg16", 8)], np.arange(4))
    for at, (model, batch) in enumerate([("bert", 48), ("vgg16", 8)]):
        network = data.models[model].coefficients
        assert slice_ms[at, batch] == pytest.approx(network.gpu_ms(batch, 3))
        for launching in (1, 3):
            assert think_ms[launching, at, batch] == pytest.approx(network.exposed_host_ms(batch, launching, 3))
        assert (np.diff(think_ms[1:, at, batch]) >= 0).all()
        assert slice_ms[at, 7] == slice_ms[at, 8]


def test_shared_slices_run_and_agree_with_the_open_network():
    """A shared slice at a light load answers near what the verifier predicts, from both sides of it."""
    instance = provision.read("parvagpu-s1-shared")
    names = [one.name for one in instance.workloads][:2]
    workloads = tuple(one.model_copy(update={"rate_rps": 20.0}) for one in instance.workloads if one.name in names)
    light = instance.replace(workloads=workloads)
    piece = piece_of("7g.80gb", *((name, 1, 1, 20.0) for name in names))
    predicted = [one.latency_ms for one in predict_slice(light, "a100-80gb", piece)]
    report = provision.simulate(light, plan_of(light, piece), 20, max_delay_ms=0.0)
    for one, latency_ms in zip(report.workloads, predicted, strict=True):
        assert 0.5 * latency_ms < one.p50.mean_ms < 2 * latency_ms


def test_overload_shows():
    """Twice the throughput: the SLO breaks, and the requests in flight at the end are those not served."""
    instance = table(rate_rps=400.0)
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 400.0)), gpu="t4", mig=False)
    one = provision.simulate(instance, plan, 10).workloads[0]
    assert not one.ok
    assert one.throughput_rps == pytest.approx(200, rel=0.02)
    assert one.in_flight == pytest.approx(2000, rel=0.1)
    assert one.utilisation == pytest.approx(1, abs=1e-3)
    assert one.violation_rate > 0.9
    bounded = provision.simulate(instance, plan, 10, queue_limit=4).workloads[0]
    assert bounded.in_flight <= 4 + 4
    assert (bounded.p99.mean_ms, bounded.ok) == (None, False)
    assert bounded.violation_rate == pytest.approx(0.5, abs=0.05)


def test_workload_without_replica_is_dropped():
    """A plan that lacks a workload is replayed all the same: nobody answers its requests."""
    instance = table()
    report = provision.simulate(instance, plan_of(instance), 5)
    assert report.workloads[0].dropped == report.workloads[0].arrived > 0
    assert not report.ok
    assert any("no replica" in note for note in report.notes)


def test_confidence_intervals():
    """Several replications give intervals around their mean; one gives none."""
    instance = table(rate_rps=200.0)
    plan = plan_of(instance, piece_of("whole", ("w", 4, 2, 200.0)), gpu="t4", mig=False)
    one = provision.simulate(instance, plan, 5).workloads[0].p99
    several = provision.simulate(instance, plan, 5, replications=6).workloads[0].p99
    assert one.low_ms is one.high_ms is None
    assert several.low_ms < 0.99 * several.mean_ms < 1.01 * several.mean_ms < several.high_ms


def test_warm_up_is_left_out(tmp_path):
    """Latencies and rates are those of requests that arrive after the warm-up; the counts are those of all."""
    (tmp_path / "trace.csv").write_text("time_s,workload\n" + "0.5,w\n" * 9 + "2,w\n")
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    one = provision.simulate(instance, plan, 3.0, trace=str(tmp_path / "trace.csv"), max_delay_ms=0.0, warmup_s=1.0)
    one = one.workloads[0]
    assert (one.arrived, one.p50.mean_ms, one.p999.mean_ms) == (10, 10, 10)
    assert (one.offered_rps, one.throughput_rps) == (0.5, 0.5)
    assert one.utilisation == pytest.approx(0.01 / 2)


@pytest.mark.parametrize(("options", "complaint"), [
    ({"seconds": 0.0}, "seconds"), ({"seconds": -1}, "seconds"), ({"seconds": math.nan}, "seconds"),
    ({"seconds": 1e6}, "at most 5e\\+07"), ({"seed": -1}, "seed"), ({"replications": 0}, "replications"),
    ({"arrival_cv": -1.0}, "arrival_cv"), ({"max_delay_ms": math.inf}, "max_delay_ms"),
    ({"queue_limit": 0}, "queue_limit"), ({"warmup_s": 60.0}, "warmup_s"), ({"service_cv": 11.0}, "service_cv"),
    ({"service_factor": 0.0}, "service_factor"), ({"speed": 1}, "speed"), ({"trace": "nowhere.csv"}, "nowhere.csv"),
])
def test_bad_options(testbed, options, complaint):
    """Options out of range are refused by name, in one line."""
    with pytest.raises(provision.InputError, match=complaint):
        provision.simulate(*testbed, **options)


def test_plans_that_cannot_be_replayed():
    """Workloads and operating points that nothing is known of are named."""
    instance = table()
    for piece, complaint in (
        (piece_of("whole", ("x", 4, 1, 50.0)), "'x' is no workload of tiny"),
        (piece_of("whole", ("w", 3, 1, 50.0)), "no performance data for w at batch 3"),
    ):
        with pytest.raises(provision.InputError, match=complaint):
            provision.simulate(instance, plan_of(instance, piece, gpu="t4", mig=False))


def test_shadow_processes_take_over(testbed):
    """A model too optimistic breaks SLOs; standby processes with up to 10 % more SMs start at 1.5 s and help."""
    options = {"seconds": 20, "arrival_cv": 0.0, "service_factor": 1.06, "warmup_s": 4.0}
    without, with_them = (provision.simulate(*testbed, **options, shadow=shadow) for shadow in (False, True))
    assert not without.switches
    assert with_them.switches
    assert min(one.at_s for one in with_them.switches) == 1.5
    for one in with_them.switches:
        assert 0 < one.to_share - one.from_share <= 0.1 + 1e-9
    switched = {one.workload for one in with_them.switches}
    before, after = (
        np.mean([one.violation_rate for one in report.workloads if one.workload in switched])
        for report in (without, with_them)
    )
    assert after < before / 2
    assert sum(with_them.switches[0].workload == one.workload for one in with_them.switches) == 1


def test_shadow_waits_for_confirmation(testbed, tmp_path):
    """What breaks the SLO at a whole second but no more half a second later does not switch."""
    burst = [0.5] * 7  # batches of up to 3 behind each other: 2 requests are late, of 77 and of 225
    times = sorted(burst + [0.014 * number for number in range(70)] + [1 + 0.0034 * number for number in range(148)])
    for last, switched in ((1.0, ["alexnet-app2"]), (1.5, [])):
        rows = "".join(f"{time_s:.4f},alexnet-app2\n" for time_s in times if time_s < last)
        (tmp_path / "trace.csv").write_text(f"time_s,workload\n{rows}")
        report = provision.simulate(*testbed, 3.0, trace=str(tmp_path / "trace.csv"), shadow=True)
        assert [one.workload for one in report.switches] == switched


def test_shadow_rests_while_slos_hold(testbed):
    """Without violations nothing is switched and nothing changes."""
    plain, ready = (provision.simulate(*testbed, 5, arrival_cv=0.0, shadow=shadow) for shadow in (False, True))
    assert ready.switches == ()
    assert ready.workloads == plain.workloads


def test_shadow_needs_igniter():
    """Nothing tells what more SMs do to measured segments."""
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    with pytest.raises(provision.InputError, match="not under iGniter's model"):
        provision.simulate(instance, plan, shadow=True)


def test_command_json(run):
    """``--json`` prints one object with the agreed keys; the counts add up; exit 0."""
    code, out, err = run("plan.json --seconds 3 --arrival-cv 0 --json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["ok"] is True
    assert all(set(one) == KEYS for one in found["workloads"])
    assert found["arrived"] == found["served"] + found["dropped"] + found["in_flight"]
    assert all(found[name] == sum(one[name] for one in found["workloads"]) for name in COUNTS)
    assert found["settings"]["warmup_s"] == pytest.approx(0.3)


def test_command_says_no(run):
    """A broken SLO is exit 1, with the workloads named."""
    code, out, err = run("slow.json --seconds 3 --arrival-cv 0")
    assert code == 1
    assert "over their SLO" in out
    assert "has no replica" in err


@pytest.mark.parametrize("name", ["latencies.png", "latencies.svg"])
def test_command_draws(run, files, name):
    """The picture is written once, again only with ``--force``, and what was there stays."""
    start = "plan.json --seconds 2 --arrival-cv 0 --png"
    assert run(f"{start} {name}")[0] == 0
    assert (files / name).stat().st_size > 10_000
    (files / name).write_text("mine")
    code, out, err = run(f"{start} {name}")
    assert (code, out) == (2, "")
    assert "exists already" in err
    assert (files / name).read_text() == "mine"
    assert run(f"{start} {name} --force")[0] == 0
    assert (files / name).stat().st_size > 10_000


@pytest.mark.parametrize("line", [
    "plan.json --seconds 0", "plan.json --seconds nan", "plan.json --seconds many", "plan.json --replications 0",
    "plan.json --png x.gif", "plan.json --trace no.csv", "missing.json",
])
def test_command_refuses(run, line):
    """Unusable input: one line on stderr, exit 2."""
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1

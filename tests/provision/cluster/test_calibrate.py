"""``provision calibrate``: a running plan that does, or does not do, what was predicted."""

import json
import shutil

import pytest
from prometheus_server import answering, real_prometheus, vector
from token_instances import chat, performance
from token_instances import instance as token_instance

import provision
from provision import InputError, simulate
from provision.cli import main
from provision.cluster.calibrate import calibrate, corrected, read_observed
from provision.cluster.metrics import measured, observation
from provision.cluster.state import Observation, State, StateGpu, StateSlice
from provision.models.performance.tokens.data import PARTS
from provision.models.plans.simulation_report import Interval


@pytest.fixture(scope="module")
def running():
    """A small instance and a plan for it."""
    instance = provision.Instance.model_validate({
        "version": 2, "name": "two", "performance": "parvagpu-a100", "fleet": [{"gpu": "a100-80gb", "mps": False}],
        "workloads": [{"name": "ask", "model": "bert", "slo_ms": 600, "rate_rps": 40},
                      {"name": "see", "model": "resnet50", "slo_ms": 100, "rate_rps": 200}]})
    return instance, provision.solve(instance, method="greedy", time_limit_s=5).plan


def seen(instance, plan, factor, seed=7, requests=5000):
    """What would be observed if all batches took ``factor`` times as long as predicted."""
    report = simulate(instance, plan, 60, seed, service_factor=factor)
    return {one.workload: Observation(
        window_s=60, requests=requests, rate_rps=instance.workload[one.workload].rate_rps,
        p50_ms=(one.p50.mean_ms,) * 3, p99_ms=(one.p99.mean_ms,) * 3) for one in report.workloads}


def test_what_was_predicted_is_inside(running):
    found = calibrate(*running, seen(*running, 1.0))
    assert found.ok and not found.factors and len(found.rows) == 4
    assert all(one.inside and one.band_ms[0] < one.predicted_ms < one.band_ms[1] for one in found.rows)
    assert found.provenance["ask"].origin == "observed"
    assert found.provenance["performance.parvagpu-a100"].origin == "fitted"


def test_what_takes_longer_is_outside_and_corrected(running):
    instance, plan = running
    found = calibrate(instance, plan, seen(instance, plan, 1.6))
    assert not found.ok and [found.factors[model] for model in ("bert", "resnet50")] == [
        pytest.approx({"times": 1.6}, rel=0.05)] * 2
    [data], lines = corrected(instance, found.factors)
    assert not lines
    for model in ("bert", "resnet50"):
        old = instance.performance[0].operating_points(model, "1g.10gb").latency_ms
        times = old * found.factors[model]["times"]
        assert data.operating_points(model, "1g.10gb").latency_ms == pytest.approx(times, rel=1e-6)


def test_a_p99_that_alone_is_outside_is_not_corrected_by_the_p50(running):
    """Times that fit with a tail that does not: no factor explains both; a P50 that a bucket hides leaves the P99's."""
    instance, plan = running
    told = seen(instance, plan, 1.0)["see"]
    long = told.model_copy(update={"p99_ms": tuple(2 * one for one in told.p99_ms)})
    found = calibrate(instance, plan, {"see": long})
    assert not found.ok and [one.inside for one in found.rows] == [True, False] and not found.factors
    assert "no factor on its times explains" in found.notes[0] and "bursts make long tails" in found.notes[0]
    short = told.model_copy(update={"p50_ms": tuple(one / 2 for one in told.p50_ms)})
    assert "no factor on its times explains" in calibrate(instance, plan, {"see": short}).notes[0]
    slow = seen(instance, plan, 1.6)["see"]
    hidden = slow.model_copy(update={"p50_ms": (slow.p50_ms[0], 1.0, 10 * slow.p50_ms[0])})
    found = calibrate(instance, plan, {"see": hidden})
    assert [one.inside for one in found.rows] == [True, False]
    assert found.factors["resnet50"]["times"] == pytest.approx(1.6, rel=0.1)


def test_percentiles_that_the_simulation_does_not_tell(running, monkeypatch):
    """A workload without arrivals gets no verdict; where a trial has no P99, its P50 tells the factor all the same."""
    instance, plan = running
    idle = {"see": seen(instance, plan, 1.0)["see"].model_copy(update={"rate_rps": 0.0})}
    found = calibrate(instance, plan, idle)
    assert found.ok and [(one.inside, one.predicted_ms) for one in found.rows] == [(None, None)] * 2
    assert "no P99 at its rate" in found.notes[0]

    def cut(most, *gone):
        def simulated(instance, plan, seconds, seed, service_factor):
            report = simulate(instance, plan, seconds, seed, service_factor=service_factor)
            missing = dict.fromkeys(gone if service_factor > most else (), Interval(mean_ms=None))
            return report.model_copy(update={"workloads": tuple(one.model_copy(update=missing)
                                                                for one in report.workloads)})
        monkeypatch.setattr("provision.cluster.calibrate.simulate", simulated)
        return calibrate(instance, plan, slow)

    slow = {"see": seen(instance, plan, 1.6)["see"]}
    assert cut(1.65, "p99").factors["resnet50"]["times"] == pytest.approx(1.6, rel=0.1)
    found = cut(1.2, "p50", "p99")
    assert not found.ok and not found.factors and "no factor on its times explains" in found.notes[0]


def test_few_requests_give_no_verdict(running):
    found = calibrate(*running, seen(*running, 1.6, requests=200))
    assert found.ok and {one.inside for one in found.rows} == {None}
    assert "200 requests are too few" in found.notes[0]


def test_a_wrong_unit_is_told(running):
    instance, plan = running
    wrong = {"ask": Observation(window_s=60, requests=5000, p50_ms=(3e5, 3e5, 3e5))}
    with pytest.raises(InputError, match="hardly one unit"):
        calibrate(instance, plan, wrong)
    with pytest.raises(InputError, match="no workload 'x'; it has ask, see"):
        calibrate(instance, plan, {"x": wrong["ask"]})


def test_the_command_ends_with_the_verdict(running, tmp_path, capsys):
    instance, plan = running
    provision.write(instance, tmp_path / "i.yaml")
    provision.write(plan, tmp_path / "p.json")
    line = ["calibrate", str(tmp_path / "i.yaml"), str(tmp_path / "p.json")]
    table = tmp_path / "seen.csv"

    def write_table(factor):
        rows = [f"{name},{one.requests},{one.p50_ms[0]},{one.p99_ms[0]}" for name, one in
                seen(instance, plan, factor).items()]
        table.write_text("\n".join(["workload,requests,p50_ms,p99_ms", *rows]))

    write_table(1.0)
    assert read_observed(table)["ask"].requests == 5000
    assert main([*line, "--observed", str(table)]) == 0
    write_table(1.6)
    out = tmp_path / "corrected.yaml"
    assert main([*line, "--observed", str(table), "--out", str(out), "--json"]) == 1
    assert not json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))["ok"] and out.exists()
    before = out.read_bytes()
    assert main([*line, "--observed", str(table), "--out", str(out)]) == 2 and out.read_bytes() == before
    assert main(line) == 2 and "and not both" in capsys.readouterr().err
    table.write_text("workload,requests,p50_ms,p99_ms\nask,5,x,3\n")
    assert main([*line, "--observed", str(table)]) == 2
    assert "seen.csv:2: p50_ms 'x' is not a number" in capsys.readouterr().err


def state_of(instance, plan, observed):
    """A state in which a plan runs."""
    gpus = [StateGpu(node="n", number=number, gpu=gpu.gpu, mig=gpu.mig, slices=tuple(
        StateSlice(profile=one.profile, start=one.start, pods=("s/p",), replicas=one.replicas) for one in gpu.slices))
        for number, gpu in enumerate(plan.gpus)]
    return State(name="s", sources=("test",), gpus=tuple(gpus), instance=instance, observations=observed)


def test_a_state_is_judged_by_what_was_observed_when_it_was_imported(running, tmp_path, capsys):
    instance, plan = running
    path = tmp_path / "state.json"
    for factor, code in ((1.0, 0), (1.6, 1)):
        provision.write(state_of(instance, plan, seen(instance, plan, factor)), path, force=True)
        assert main(["calibrate", str(path)]) == code
    provision.write(state_of(instance, plan, {}), path, force=True)
    assert main(["calibrate", str(path)]) == 2
    assert "or a state that was imported with --prometheus" in capsys.readouterr().err
    server, url = answering(vector(("ask", "1"), ("see", "1")))
    assert main(["watch", str(path), "--prometheus", url, "--looks", "1", "--journal", str(tmp_path / "w.db")]) == 0
    server.shutdown()
    assert f"{plan.gpu_count} GPUs; decisions go to" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_a_real_prometheus_is_judged(running, tmp_path):
    """Triton's histogram of a workload whose P50 and P99 lie in the buckets where the simulation has them."""
    instance, plan = running
    truth = seen(instance, plan, 1.0)["see"]
    ends = [truth.p50_ms[0] * 1.1, truth.p99_ms[0] * 1.05]

    def page(seconds):
        rows = [(f"{ends[0]:.3f}", 0.6), (f"{ends[1]:.3f}", 0.995), ("+Inf", 1.0)]
        name = "nv_inference_first_response_histogram_ms_bucket"
        return "".join(f'{name}{{model="resnet50",le="{end}"}} {200 * part * seconds}\n' for end, part in rows)

    provision.write(instance, tmp_path / "i.yaml")
    provision.write(plan, tmp_path / "p.json")
    with real_prometheus(tmp_path, page, 26) as url:
        line = ["calibrate", str(tmp_path / "i.yaml"), str(tmp_path / "p.json"), "--prometheus", url, "--window", "6"]
        assert main(line) == 0


def planted(instance, factors):
    """The instance with parts of the model's times multiplied by factors."""
    [data] = instance.performance
    return instance.replace(performance=(type(data).model_validate(data.scaled({"llama-8b": factors})),))


@pytest.fixture(scope="module")
def talking():
    """A language model with short and long prompts, each on an H100 of its own."""
    data = performance("h100-80gb", whole=(400_000, 1.0))
    data["models"]["llama-8b"]["slices"]["whole"]["bands"] = {
        "source": "made up", "ttft": {"low": 0.9, "high": 1.1}, "tpot": {"low": 0.95, "high": 1.05}}
    long = {"input": {"min": 2000.0, "max": 4000.0}, "output": {"min": 20.0, "max": 60.0}}
    instance = token_instance([chat(rate_rps=20.0), chat("long", 5.0, tokens=long, slo={"ttft_ms": 2000.0,
                                                                                      "tpot_ms": 60.0})], files=[data])
    return instance, provision.solve(instance, time_limit_s=5, replay=False).plan


@pytest.fixture(scope="module")
def chatting():
    """A language model on an H100, with a band on its first tokens and on the others, and a plan for it."""
    data = performance("h100-80gb", whole=(400_000, 1.0))
    data["models"]["llama-8b"]["slices"]["whole"]["bands"] = {
        "source": "made up", "ttft": {"low": 0.7, "high": 1.4}, "tpot": {"low": 0.9, "high": 1.1}}
    instance = token_instance([chat(rate_rps=20.0)], files=[data])
    return instance, provision.solve(instance, time_limit_s=5, replay=False).plan


def test_first_tokens_and_the_time_per_token_are_judged(chatting):
    instance, plan = chatting
    for factor, ok in ((1.0, True), (1.3, False)):
        report = simulate(instance, plan, 60, 3, service_factor=factor)
        exact = {one.workload.rpartition(" ")[2].lower(): tuple((each.mean_ms,) * 3 for each in (one.p50, one.p99))
                 for one in report.tokens}
        found = calibrate(instance, plan, {"chat": Observation(window_s=60, requests=1200, rate_rps=20, tokens=exact)})
        assert [one.label for one in found.rows] == ["P50 of TTFT", "P99 of TTFT", "P50 of TPOT", "P99 of TPOT"]
        assert found.ok is ok and [one.inside for one in found.rows] == [True, True, ok, ok]
    assert found.factors["llama-8b"]["decode"] == pytest.approx(1.3, rel=0.05)


def told_tokens(instance, plan, seconds=600, seed=3):
    """What would be observed of first and further tokens if an instance's data were true."""
    found = {}
    for one in simulate(instance, plan, seconds, seed).tokens:
        name, _, limit = one.workload.rpartition(": ")
        found.setdefault(name, {})[limit.lower()] = tuple((each.mean_ms,) * 3 for each in (one.p50, one.p99))
    return {name: Observation(window_s=seconds, requests=2000, rate_rps=instance.workload[name].rate_rps, tokens=tokens)
            for name, tokens in found.items()}


@pytest.mark.parametrize(("part", "factor"), [("decode", 1.5), ("prefill", 0.6), ("overhead", 3.0)])
def test_a_wrong_coefficient_of_a_language_model_is_recovered(talking, part, factor):
    """Two workloads, one with long prompts: a planted error of one part is found there, and the other parts stay."""
    instance, plan = talking
    wrong = {"decode": 1.0, "prefill": 1.0, "overhead": 1.0} | {part: factor}
    truth = planted(instance, wrong)
    found = calibrate(instance, plan, told_tokens(truth, plan))
    assert not found.ok
    fitted = found.factors["llama-8b"]
    assert fitted[part] == pytest.approx(factor, rel=0.07)
    assert all(fitted[other] == pytest.approx(1, abs=0.1) for other in {*PARTS} - {part})
    [data], lines = corrected(instance, found.factors)
    again = calibrate(instance.replace(performance=(data,)), plan, told_tokens(truth, plan, seed=9))
    assert not lines and again.ok and {one.inside for one in again.rows} == {None}
    kept = {"source": "made up", "ttft": {"low": 0.9, "high": 1.1}, "tpot": {"low": 0.95, "high": 1.05}}
    content = data.model_dump(mode="json")
    content["models"]["llama-8b"]["slices"]["whole"]["bands"] = kept
    judged = instance.replace(performance=(type(data).model_validate(content),))
    rows = calibrate(judged, plan, told_tokens(truth, plan, seed=9)).rows
    assert [one.inside for one in rows if one.percentile == 50] == [True] * 4


def test_what_observations_do_not_tell_stays(talking):
    """From the time per token alone nothing is known of prompts and of the front end."""
    instance, plan = talking
    truth = planted(instance, {"decode": 1.4, "prefill": 1.0, "overhead": 3.0})
    seen_only = {name: one.model_copy(update={"tokens": {"tpot": one.tokens["tpot"]}})
                 for name, one in told_tokens(truth, plan).items()}
    found = calibrate(instance, plan, seen_only)
    assert found.factors["llama-8b"]["decode"] == pytest.approx(1.4, rel=0.07)
    assert "overhead" not in found.factors["llama-8b"]
    assert any("does not tell" in note and "overhead" in note for note in found.notes)


SERVERS = {
    "vllm": ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
             "vllm:request_time_per_output_token_seconds", "vllm:time_to_first_token_seconds"),
    "older": ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
              "vllm:time_per_output_token_seconds", "vllm:time_to_first_token_seconds"),
    "sglang": ("sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total",
               "sglang:inter_token_latency_seconds", "sglang:time_to_first_token_seconds"),
    "tgi": ("tgi_request_success", "tgi_request_input_length_sum", "tgi_request_generated_tokens_sum",
            "tgi_request_mean_time_per_token_duration"),
}
"""What each server calls requests, tokens in and out, time per token and, where told, time to the first token."""


def token_page(seconds):
    """One pod of each server: first tokens within 0.2 s, further ones within 0.02 s, 200 tokens in and 40 out."""
    lines = []
    for pod, (*counters, tpot, ttft) in {**SERVERS, "tgi": (*SERVERS["tgi"], "")}.items():
        of = f'namespace="shop",pod="{pod}"' + ("" if pod == "tgi" else f',model_name="{pod}"')
        rates = zip(counters, (400, 80_000, 16_000), strict=True)
        lines += [f"{name}{{{of}}} {rate * seconds}" for name, rate in rates]
        lines += [f'{name}_bucket{{{of},le="{le}"}} {400 * seconds}' for name, end in ((tpot, "0.02"), (ttft, "0.2"))
                  if name for le in (end, "+Inf")]
    return "\n".join([*lines, ""])


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_token_metrics_of_servers_are_read_by_a_real_prometheus(tmp_path):
    with real_prometheus(tmp_path, token_page, 14) as url:
        found = measured(url, window_s=3)
    assert {series.pod for series in found.series} == set(SERVERS)
    for series in found.series:
        for quantity, mean in (("prompt_tokens", 200), ("output_tokens", 40)):
            assert series.rates[quantity] / series.rates["requests"] == pytest.approx(mean, rel=0.05)
        ends = {name: both[1][1:] for name, both in observation([series], found).tokens.items()}
        assert ends == {"tpot": (0, 20)} | ({} if series.pod == "tgi" else {"ttft": (0, 200)})

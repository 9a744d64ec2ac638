"""Readers of what load generators and planners of language models write: public samples, and small files made here."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from token_instances import performance

from provision.instances.importers.tokens.guidellm import read_guidellm, read_guidellm_csv
from provision.instances.importers.tokens.inference_perf import minimum_instance, read_inference_perf
from provision.instances.importers.tokens.inferno import read_inferno
from provision.instances.importers.tokens.iterations import read_splitwise
from provision.instances.importers.tokens.vllm_bench import read_aiperf, read_vllm_bench
from provision.models.base.errors import InputError
from provision.models.performance.tokens.data import TokenModels

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public samples are not there")


@shared
def test_guidellm_sweep():
    runs = read_guidellm(SHARED / "llm/guidellm/sweep-i64-o256.json")
    assert [run.load.arrivals for run in runs] == ["closed"] * 2 + ["constant"] * 8
    assert [run.load.concurrency for run in runs[:2]] == [1, 512]
    at_rate = runs[2]
    assert (at_rate.load.burst, at_rate.completed, at_rate.failed, at_rate.unfinished) == (8, 2922, 0, 16)
    assert at_rate.load.rate_rps == pytest.approx(8.141, abs=1e-3)
    assert at_rate.ttft.percentiles[99] == pytest.approx(32.7, abs=0.1)
    for run in runs:  # the very requests that were sent, which nothing but their order could tell
        sent = run.completed + run.failed + run.unfinished
        assert run.load.prompt.sample(sent, 0).mean() == pytest.approx(run.prompt.mean, rel=0.006)
    broken = runs[5]
    assert broken.ttft.mean is None and broken.ttft.percentiles[50] == pytest.approx(23.4, abs=0.1)


def distribution(middle):
    """A metric as GuideLLM saves it, all values alike."""
    points = dict.fromkeys(["p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999"], middle)
    one = {"mean": middle, "median": middle, "std_dev": 0.0, "min": middle, "max": middle, "percentiles": points}
    return {"successful": one, "total": one}


STRATEGY = {"type_": "constant", "rate": 2.0, "initial_burst": True}
OLD = {"args": {"profile": {"random_seed": 42}, "strategy": STRATEGY}, "worker": {"backend_model": "m"},
       "request_loader": {"data": "prompt_tokens=512"}, "start_time": 10.0, "end_time": 40.0}
NEW = {"config": {"strategy": STRATEGY, "backend": {"model": "m"}, "requests": {"data": ["prompt_tokens=512"]}},
       "duration": 30.0}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_guidellms_own_report_is_read(tmp_path, version):
    metrics = {
        "request_totals": {"successful": 58, "errored": 1, "incomplete": 2, "total": 61},
        "requests_per_second": distribution(1.9), "prompt_token_count": distribution(512.0),
        "output_token_count": distribution(128.0), "time_to_first_token_ms": distribution(30.0),
        "inter_token_latency_ms": distribution(9.0), "time_per_output_token_ms": distribution(9.5),
        "request_latency": distribution(1.2),
    }
    (tmp_path / "report.json").write_text(json.dumps({"benchmarks": [version | {"metrics": metrics}]}))
    [run] = read_guidellm(tmp_path / "report.json")
    assert (run.model, run.completed, run.failed, run.unfinished, run.rate_rps) == ("m", 58, 1, 2, 1.9)
    assert (run.load.arrivals, run.load.rate_rps, run.load.burst, run.load.duration_s) == ("constant", 2.0, 2, 30.0)
    assert (run.ttft.mean, run.itl.percentiles[99], run.e2e.mean) == (30.0, 9.0, 1200.0)
    assert run.load.prompt.mean == 512 and run.load.output.mean == 128


@shared
def test_guidellm_csv_finds_cells_that_the_header_does_not_name():
    """The sample's own rows tell: total time is TTFT plus the tokens after the first, in every run."""
    path = SHARED / "llm/guidellm/csv-format-sample.csv"
    runs = read_guidellm_csv(path)
    assert [run.load.arrivals for run in runs] == ["closed"] * 2 + ["constant"] * 8
    for run in runs:
        rebuilt_ms = run.ttft.mean + run.itl.mean * (run.output.mean - 1)
        assert run.e2e.mean == pytest.approx(rebuilt_ms, rel=0.01)
        assert run.prompt.mean == pytest.approx(1030, rel=0.03) and run.output.mean == pytest.approx(256, rel=0.02)
        assert run.rate_rps == pytest.approx(run.completed / run.load.duration_s, rel=0.01)


@shared
@pytest.mark.parametrize(("name", "sizes"), [("small", (6, 30, 15)), ("large", (21, 189, 27))])
def test_inferno(name, sizes):
    instance = read_inferno(SHARED / "inferno" / name)
    assert (len(instance.accelerators), len(instance.profiles), len(instance.servers)) == sizes
    assert {choice.accelerator for choice in instance.solution.values()} - {""} <= {
        one.name for one in instance.accelerators
    }
    assert all(instance.target(server).itl_ms > 0 for server in instance.servers)


def bench(**changes):
    return {
        "date": "20260101-000000", "model_id": "m", "num_prompts": 10, "completed": 8, "request_rate": 2.0,
        "burstiness": 1.0, "max_concurrency": None, "duration": 5.0, "total_input_tokens": 800,
        "total_output_tokens": 400, "request_throughput": 1.6, "mean_ttft_ms": 20.0, "median_ttft_ms": 19.0,
        "std_ttft_ms": 1.0, "p99_ttft_ms": 40.0, "p99_tpot_ms": 8.0,
    } | changes  # fmt: skip


def test_vllm_bench_in_ms_and_one_run_per_line(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench(), indent=1))
    [run] = read_vllm_bench(path)
    assert (run.ttft.mean, run.ttft.std, run.ttft.percentiles) == (20.0, 1.0, {50.0: 19.0, 99.0: 40.0})
    assert (run.load.arrivals, run.load.rate_rps, run.failed, run.prompt.mean) == ("poisson", 2.0, 2, 100)
    path.write_text("\n".join(json.dumps(bench(burstiness=burstiness)) for burstiness in (1.0, 0.5)))
    assert [run.load is None for run in read_vllm_bench(path)] == [False, True]


def record(**changes):
    metrics = {
        "time_to_first_token": {"value": 0.02, "unit": "sec"},
        "inter_token_latency": {"value": 10.0, "unit": "ms"},
        "request_latency": {"value": 110_000_000, "unit": "ns"},
        "input_sequence_length": {"value": 100, "unit": "tokens"},
        "output_sequence_length": {"value": 10, "unit": "tokens"},
    }
    about = {"benchmark_phase": "profiling", "request_start_ns": 0, "request_end_ns": 10**9, "was_cancelled": False}
    return {"metadata": about, "metrics": metrics, "error": None} | changes


def test_aiperf(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    warm = record(metadata=record()["metadata"] | {"benchmark_phase": "warmup"})
    failed = record(error={"code": 500}, metrics={})
    path.write_text("\n".join(json.dumps(one) for one in (warm, record(), record(), failed)))
    run = read_aiperf(path)
    assert (run.completed, run.failed, run.rate_rps) == (2, 1, 2.0)
    assert run.ttft.mean == pytest.approx(20) and run.e2e.percentiles[99] == pytest.approx(110)
    assert run.load is None and run.itl.mean == run.tpot.mean == 10


def test_inference_perf_with_system_prompts(tmp_path):
    """Groups by either name; prompts of one length, their system prompts stated apart."""
    for groups in ("num_groups", "num_unique_system_prompts"):
        path = tmp_path / f"{groups}.yml"
        path.write_text(yaml.safe_dump({
            "load": {"type": "poisson", "stages": [{"rate": 5, "duration": 60}]},
            "data": {"type": "shared_prefix", "shared_prefix": {
                groups: 4, "system_prompt_len": 1000, "question_len": 200, "output_len": 50}}}))
        spec = read_inference_perf(path)
        assert (spec.prompt.mean, spec.output.mean) == (1200, 50)
        assert (spec.prefix.tokens, spec.prefix.distinct) == (1000, 4)
        data = TokenModels.model_validate(performance("h100-80gb", whole=(400_000, 1.0)))
        problem = minimum_instance(spec, [data], "llama-8b", ttft_ms=300.0, tpot_ms=20.0)
        assert problem.workloads[0].tokens.shared_prefix == spec.prefix


def test_inference_perf_with_distributions_and_slos(tmp_path):
    path = tmp_path / "spec.yml"
    path.write_text(
        "load: {type: poisson, stages: [{rate: 2, duration: 60}, {rate: 4, duration: 30}]}\n"
        "api: {type: completion, headers: {x-slo-ttft-ms: 500, x-slo-tpot-ms: 30}}\n"
        "data:\n  type: random\n"
        "  input_distribution: {min: 10, max: 200, mean: 100, std_dev: 20, total_count: 100}\n"
        "  output_distribution: {min: 5, max: 50, mean: 20, std_dev: 0, total_count: 100}\n"
    )
    spec = read_inference_perf(path)
    assert (spec.ttft_ms, spec.tpot_ms) == (500, 30)
    first, second = spec.loads()
    assert (first.rate_rps, second.duration_s, first.arrivals) == (2, 30, "poisson")
    assert first.prompt.mean == pytest.approx(100, abs=0.5) and first.prompt.tokens[0] == 10
    assert first.output.mean == 20


@pytest.mark.parametrize(
    ("reader", "text", "says"),
    [
        (read_guidellm, "{}", "holds no list"),
        (read_guidellm, "[{}]", "run 1: field 'Args' is missing"),
        (read_guidellm, "[", "not well-formed JSON"),
        (read_guidellm_csv, "a,b\n1,2\n", "three header rows"),
        (read_vllm_bench, "[]", "holds no run"),
        (read_vllm_bench, json.dumps(bench(duration="long")), "not as vllm bench serve writes it"),
        (read_vllm_bench, json.dumps(bench(completed=0)), "not as vllm bench serve writes it"),
        (read_aiperf, "", "no answered request"),
        (read_aiperf, '{"metadata": {}, "metrics": {}}', ":1: field 'request_start_ns' is missing"),
        (read_inference_perf, "load: {type: concurrent, stages: []}", "has no rate"),
        (read_inference_perf, "{}", "field 'load' is missing"),
        (read_splitwise, "model\nx\n", "column 'hardware' is missing"),
    ],
)
def test_bad_files_get_one_line(tmp_path, reader, text, says):
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        reader(path)


def test_inferno_without_a_file(tmp_path):
    with pytest.raises(InputError, match=r"accelerator-data\.json: cannot be read"):
        read_inferno(tmp_path)


def test_csv_limit_is_left_large_enough_for_guidellm(tmp_path):
    path = tmp_path / "sweep.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["Run Info"], [""], [""], ["x" * 200_000]])
    with pytest.raises(InputError, match="run 1"):
        read_guidellm_csv(path)

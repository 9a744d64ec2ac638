"""From benchmark files of language models to proven plans, by the command line."""

import json

import numpy as np
import pytest
import yaml
from token_instances import performance

from provision.cli import main
from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks
from provision.instances.importers.tokens.server import Server
from provision.models.performance.tokens.data import EngineLimits, TokenModels
from provision.models.performance.tokens.loads import TokenBenchmark, TokenCounts, TokenLoad
from provision.models.performance.tokens.operating import costs_of, replay_load, summary

RUN = {
    "date": "20261101-120000", "model_id": "llama-8b", "num_prompts": 1200, "request_rate": 10.0, "burstiness": 1.0,
    "max_concurrency": None, "duration": 121.0, "completed": 1200, "total_input_tokens": 1228800,
    "total_output_tokens": 307200, "request_throughput": 9.92, "mean_ttft_ms": 47.0, "median_ttft_ms": 44.0,
    "p99_ttft_ms": 110.0, "mean_tpot_ms": 9.1, "median_tpot_ms": 9.0, "p99_tpot_ms": 12.2, "mean_itl_ms": 9.1,
    "median_itl_ms": 7.3, "p99_itl_ms": 31.0,
}  # fmt: skip
SPEC = """
load: {type: poisson, stages: [{rate: 2, duration: 30}, {rate: 30, duration: 30}]}
api: {type: completion, headers: {x-slo-ttft-ms: "800", x-slo-tpot-ms: "40"}}
server: {type: vllm, model_name: llama-8b}
"""
RANDOM = """
data:
  type: random
  input_distribution: {min: 100, max: 3000, mean: 1000, std_dev: 500}
  output_distribution: {min: 50, max: 600, mean: 250, std_dev: 100}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a benchmark, what it was fitted to, and a specification."""
    path = tmp_path_factory.mktemp("llm")
    (path / "vllm.json").write_text(json.dumps(RUN))
    (path / "spec.yml").write_text(SPEC + RANDOM)
    assert imported(path, "vllm.json", "perf.yaml") == 0
    return path


def imported(path, source, target, *more):
    """The exit code of an import of a vLLM benchmark."""
    return main(["import", "vllm", str(path / source), "--gpu", "h100-80gb", "--model", "llama-8b", "--kv-tokens",
                 "430000", "--out", str(path / target), *more])


def test_fit_to_replays_finds_their_times():
    """Runs of a known engine, of which the file would tell means and percentiles, come out within a few per cent."""
    known = TokenModels(**performance("h100-80gb", whole=(400_000, 1.4)))
    engine, costs = known.engine_of("llama-8b", "whole", 1024), costs_of(known.slice_of("llama-8b", "whole"))
    runs = []
    for rate in (2.0, 6.0, 10.0):
        load = TokenLoad(arrivals="poisson", rate_rps=rate, duration_s=200.0, prompt=TokenCounts.uniform(500, 1500),
                         output=TokenCounts.uniform(100, 300))
        table = replay_load(load, engine, costs, seed=5)
        each = np.ones(len(table))
        ttft, tpot = (summary(times, each) for times in (
            table["first_ms"] - table["sent_ms"], (table["end_ms"] - table["first_ms"]) / (table["output"] - 1)))
        runs.append(TokenBenchmark(name=f"{rate}", load=load, ttft=ttft, itl=tpot))
    limits = EngineLimits()
    found, misfit = fitted_performance(runs, Server("h100-80gb", "whole", "llama-8b", 400_000, limits))
    one, truth = found.slice_of("llama-8b", "whole"), known.slice_of("llama-8b", "whole")
    for sequences in (1, 8, 40):
        assert one.iteration_ms(sequences, 1000 * sequences) == pytest.approx(
            truth.iteration_ms(sequences, 1000 * sequences), rel=0.1)
    assert misfit.startswith("3 runs")


def test_minimum_is_proven_in_one_command(folder, capsys):
    plan, instance = folder / "plan.yaml", folder / "instance.yaml"
    asked = ["minimum", str(folder / "spec.yml"), "--performance", str(folder / "perf.yaml"), "--json", "--out",
             str(plan), "--instance", str(instance)]
    assert main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal" and answer["bound"] == answer["objective"] >= 2
    [workload] = yaml.safe_load(instance.read_text())["workloads"]
    assert (workload["rate_rps"], workload["slo"]) == (30.0, {"ttft_ms": 800.0, "tpot_ms": 40.0})
    assert main(["verify", str(instance), str(plan)]) == 0
    assert main(["simulate", str(instance), str(plan), "--seconds", "120"]) == 0


@pytest.mark.parametrize(("changes", "options", "says"), [
    ("", [], "--input-tokens"),
    ("", ["--input-tokens", "0"], "should be at least 1"),
    (RANDOM, ["--model", "other"], "there is data for llama-8b"),
    (RANDOM, ["--percentile", "100"], "percentile"),
])
def test_minimum_refuses_in_a_line(folder, capsys, changes, options, says):
    (folder / "other.yml").write_text(SPEC + changes)
    asked = ["minimum", str(folder / "other.yml"), "--performance", str(folder / "perf.yaml"), *options]
    assert main(asked) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert says in line


@pytest.mark.parametrize(("changes", "options", "says"), [
    ({"burstiness": 3.0}, [], "both how requests were sent"),
    ({}, ["--profile", "9g.90gb"], "no profile '9g.90gb'"),
    ({}, ["--max-sequences", "9000"], "raise tokens_per_iteration"),
    ({"completed": "many"}, [], "not as vllm bench serve writes it"),
])
def test_import_refuses_in_a_line(folder, capsys, changes, options, says):
    (folder / "other.json").write_text(json.dumps(RUN | changes))
    assert imported(folder, "other.json", "other.yaml", *options) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert says in line and not (folder / "other.yaml").exists()


def test_a_file_without_its_load_takes_the_number_of_clients(folder, tmp_path):
    request = {"metadata": {"request_start_ns": 0, "request_end_ns": 10**9}, "metrics": {
        name: {"value": value, "unit": unit} for name, value, unit in (
            ("time_to_first_token", 40.0, "ms"), ("inter_token_latency", 8.0, "ms"), ("request_latency", 840.0, "ms"),
            ("input_sequence_length", 500, "tokens"), ("output_sequence_length", 101, "tokens"))}}
    (tmp_path / "profile_export.jsonl").write_text("\n".join([json.dumps(request)] * 20))
    [run] = read_benchmarks("aiperf", [tmp_path / "profile_export.jsonl"], concurrency=4)
    assert (run.load.arrivals, run.load.concurrency, run.load.prompt.mean) == ("closed", 4, 500)


SPLITWISE = """model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,\
average_power,peak_power
llama2-70b,h100-80gb,4,128,1,128,48.9,28.4,3680,0.4,0.5
llama2-70b,h100-80gb,4,512,1,128,59.6,29.6,3850,0.4,0.5
llama2-70b,h100-80gb,4,2048,1,128,200.9,29.8,4010,0.4,0.5
llama2-70b,h100-80gb,4,512,8,128,442.1,31.4,4460,0.4,0.5
"""
"""A few means of Splitwise's table (Mutinifni/splitwise-sim, MIT)."""


def test_imports_timed_iterations(tmp_path, capsys):
    """A table becomes performance data that tells how well it fits; what it lacks gets one line."""
    (tmp_path / "table.csv").write_text(SPLITWISE)
    words = ["import", "splitwise", str(tmp_path / "table.csv"), "--model", "llama2-70b", "--gpu", "h100-80gb",
             "--hardware", "h100-80gb", "--out", str(tmp_path / "perf.yaml"), "--kv-tokens"]
    assert main([*words, "451000", "--tensor-parallel", "4"]) == 0
    assert "8 timed iterations, median errors" in capsys.readouterr().out
    data = TokenModels(**yaml.safe_load((tmp_path / "perf.yaml").read_text()))
    assert data.slice_of("llama2-70b", "whole").iteration_ms(1, 512) == pytest.approx(29.4, abs=1)
    assert main([*words, "8", "--tensor-parallel", "4", "--force"]) == 2
    assert main([*words, "451000", "--force"]) == 2
    short, lacking = capsys.readouterr().err.splitlines()
    assert "--kv-tokens 8: give at least a block" in short
    assert "with tensor parallelism 1; there are llama2-70b on h100-80gb x 4" in lacking


def test_several_tensor_parallel_degrees_at_once(folder, capsys):
    """A file for each degree becomes a group of the GPUs of a node; a plan may use any of them."""
    faster = {name: value / 1.7 if name.endswith("_ms") else value for name, value in RUN.items()}
    (folder / "tp2.json").write_text(json.dumps(faster))
    line = ["import", "vllm", str(folder / "vllm.json"), str(folder / "tp2.json"), "--gpu", "h100-80gb", "--model",
            "llama-8b", "--tensor-parallel", "1,2", "--out", str(folder / "node.yaml")]
    assert main([*line, "--kv-tokens", "430000,1200000"]) == 0
    found = TokenModels.model_validate(yaml.safe_load((folder / "node.yaml").read_text()), strict=False)
    slices = found.models["llama-8b"].slices
    assert found.gpu == "2xh100-80gb" and set(slices) == {"1gpu", "2gpu"}
    assert slices["2gpu"].kv_tokens > slices["1gpu"].kv_tokens
    capsys.readouterr()
    assert main([*line, "--force", "--kv-tokens", "430000"]) == 2
    assert "give one file and one number for each degree" in capsys.readouterr().err

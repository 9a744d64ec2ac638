"""Mistakes are told at once, with what was meant; exit codes and JSON say what went wrong."""

import json
from pathlib import Path

import pytest
import yaml

from provision.cli import main
from provision.commands.verb import verdict
from provision.models.base.register import did_you_mean

MISTAKES = {
    "version": 1,
    "name": "tiny",
    "objectve": "min_cost",
    "policy": {"saftey": 0.9},
    "fleet": [{"gpu": "a100-80gb", "prise_per_hour": 1.0}],
    "performance": "parvagpu-a100",
    "workloads": [{"name": "a", "model": "resnet50", "slo_mss": 200, "slo_ms": 200, "rate_rps": "3"}],
}
MEANT = ("objective", "safety", "price_per_hour", "slo_ms")


@pytest.fixture
def instance(tmp_path):
    """A file with five mistakes."""
    path = tmp_path / "instance.yaml"
    path.write_text(yaml.safe_dump(MISTAKES))
    return str(path)


def test_all_mistakes_of_a_file_at_once(instance, capsys):
    assert main(["solve", instance]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    for name in MEANT:
        assert sum(f"did you mean '{name}'?" in line for line in lines) == 1
    assert sum("workloads[0].rate_rps" in line for line in lines) == 1


def test_no_more_than_ten_lines_and_a_count(tmp_path, capsys):
    path = tmp_path / "instance.yaml"
    path.write_text(yaml.safe_dump(MISTAKES | {f"field{number}": 1 for number in range(20)}))
    assert main(["solve", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("and 15 more")


def test_json_failures_are_an_object_on_stdout(instance, capsys):
    assert main(["solve", instance, "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["kind"] == "input"
    assert [f"error: {line}" for line in error["problems"]] == err.splitlines()
    assert error["message"] == error["problems"][0]


@pytest.mark.parametrize(("line", "meant"), [
    ("slove parvagpu-s5", "solve"),
    ("solve parvagpu-s5 --mehtod lns", "--method"),
    ("solve parvagpu-s5 --method assignment-cpsta", "assignment-cpsat"),
    ("solve parvagpus5", "parvagpu-s5"),
    ("solve parvagpu-s5 --method lns --set sede=1", None),
    ("import parvagpo x --out y", "parvagpu"),
    ("what-if parvagpu-s5 --vary rat=1,2", "rate"),
    ("simulate-trace parvagpu-s1 two-wavs", "two-waves"),
    ("simulate-trace parvagpu-s1 two-waves --policies replam", "replan"),
])
def test_what_was_meant(line, meant, capsys):
    assert main([*line.split(), "--json"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert (f"did you mean '{meant}'?" in message) == (meant is not None)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """An instance, a plan, performance data, measurements and demand, in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text("version: 2\nfleet: []\nworkloads: []\n")
    Path("plan.json").write_text('{"instance": "shop", "gpus": []}')
    Path("data.yaml").write_text("kind: tokens\nmodels: {}\n")
    Path("mine.csv").write_text("B,L\n1,4\n")
    Path("good.csv").write_text("batch,latency_ms\n1,4\n")
    Path("day.csv").write_text("time_s,workload,rate_rps\n0,brt,3\n60,bert,4\n")
    Path("bad.csv").write_text("time_s,workload,rate_rps\n0,bert,x\ny,bert,4\n0,bert,-1\n")


@pytest.mark.parametrize(("line", "said"), [
    ("solve plan.json", ["plan.json: is a plan; give an instance here"]),
    ("verify parvagpu-s1 shop.yaml", ["shop.yaml: is an instance; give a plan here"]),
    ("verify parvagpu-s1 data.yaml", ["data.yaml: is performance data; give a plan here"]),
    ("solve shop.yml", ["did you mean 'shop.yaml'?"]),
    ("solve parvagpu-s1 --time-limit soon", ["--time-limit: should be a number (got 'soon')"]),
    ("replan parvagpu-s1 plan.json --lost a", ["--lost: should be a whole number (got 'a')"]),
    ("solve parvagpu-s1 --gpus h100 --tp 2", ["only --model takes --gpus, --tp; change the instance"]),
    ("check-proof parvagpu-s1 .", [".: cannot be read: Is a directory; name a certificate"]),
    ("gpus foo", ["(see provision gpus --help)"]),
    ("import csv mine.csv --gpu l4 --model m --out m.yaml",
     ["it has B, L; expected B, latency_ms; say what yours are called"]),
    ("import csv good.csv --gpu a100-80gb --profile 1g.5gb --model m --out m.yaml", ["use one of whole, 1g.10gb"]),
    ("simulate-trace parvagpu-s1 day.csv", ["no workload 'brt'", "did you mean 'bert'?"]),
    ("simulate-trace parvagpu-s1 bad.csv", ["bad.csv:2: rate_rps", "bad.csv:3: time_s", "bad.csv:4: rate_rps"]),
])
def test_what_careless_users_are_told(files, line, said, capsys):
    assert main(line.split()) == 2
    told = capsys.readouterr().err
    assert all(line.startswith("error: ") for line in told.splitlines())
    for words in said:
        assert words in told


def test_what_the_system_refuses_is_json_too(files, monkeypatch, capsys):
    monkeypatch.setattr("provision.cli.drop_output", lambda: None)
    monkeypatch.setattr("provision.cli._run", lambda *given: Path("no/such").read_text())
    assert main(["solve", "parvagpu-s1", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "system"


@pytest.mark.parametrize(("field", "value", "meant"), [
    ("model", "resnet5O", "resnet50"), ("gpu", "a100-80g", "a100-80gb"),
    ("performance", "parvagpu-a10", "parvagpu-a100"), ("objective", "min_gpu", "min_gpus"),
])
def test_names_in_files(field, value, meant, tmp_path, capsys):
    content = {key: one for key, one in MISTAKES.items() if key not in ("objectve", "policy")}
    workload = {"name": "a", "model": "resnet50", "slo_ms": 200, "rate_rps": 3}
    content |= {"fleet": [{"gpu": "a100-80gb"}], "workloads": [workload]}
    (workload if field == "model" else content["fleet"][0] if field == "gpu" else content)[field] = value
    path = tmp_path / "instance.yaml"
    path.write_text(yaml.safe_dump(content))
    assert main(["solve", str(path)]) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize(("yes", "status", "code"), [
    (True, "optimal", 0), (False, "feasible", 1), (False, "infeasible", 1), (False, "unknown", 3),
])
def test_unknown_is_another_code_than_no(yes, status, code):
    assert verdict(yes, status) == code


def test_a_model_of_another_size_is_not_meant():
    assert did_you_mean("llama-3.1-70b", ["llama-3.1-8b"]) == ""
    assert "'llama-3.1-70b'" in did_you_mean("lama-3.1-70b", ["llama-3.1-8b", "llama-3.1-70b"])

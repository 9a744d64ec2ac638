"""Another package adds a performance model with its way of sharing, a rule, a method, an exporter and an importer."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

TOY = Path(__file__).parents[1] / "support/toy"
DATA = {"version": 1, "name": "crowded", "gpu": "t4", "kind": "crowd", "models": {"a": 1.0, "b": 2.0}}
INSTANCE = {
    "version": 1, "name": "toy", "policy": {"latency_budget": "third"}, "fleet": [{"gpu": "t4"}],
    "performance": "crowded.yaml",
    "workloads": [{"name": "one", "model": "a", "slo_ms": 30.0, "rate_rps": 300.0, "max_replicas": 1},
                  {"name": "two", "model": "b", "slo_ms": 60.0, "rate_rps": 200.0, "max_replicas": 1},
                  {"name": "three", "model": "a", "slo_ms": 90.0, "rate_rps": 900.0, "max_replicas": 1}],
}


BY_METHOD = """
import json, sys
import provision
for method in sys.argv[1:]:
    try:
        found = provision.solve("toy.yaml", method, time_limit_s=30)
        print(json.dumps([found.status, found.objective, found.verified]))
    except provision.UnsupportedError as error:
        print(json.dumps(str(error)))
"""
"""Prints a line of JSON for each method that is named: what it found, or why it does not plan the toy instance."""


def python(folder, *words, package=TOY):
    """What Python prints and says with the toy package installed."""
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": path})


def provision(folder, *words, package=TOY):
    """What a command prints and says with the toy package installed."""
    return python(folder, "-m", "provision", *words, package=package)


def test_a_toy_package_plans_and_proves(tmp_path):
    """Loads add up to 0.3 + 0.4 + 0.9 GPUs and sharing is free: two GPUs, proven, and verified from the files."""
    (tmp_path / "crowded.yaml").write_text(yaml.safe_dump(DATA))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(INSTANCE))
    solved = provision(tmp_path, "solve", "toy.yaml", "--out", "plan.json", "--json")
    assert solved.returncode == 0, solved.stderr
    found = json.loads(solved.stdout)
    assert (found["status"], found["gpus"], found["bound"], found["verified"]) == ("optimal", 2, 2, True)
    assert provision(tmp_path, "verify", "toy.yaml", "plan.json").returncode == 0
    late = {**INSTANCE, "workloads": [one | {"slo_ms": 5.0} for one in INSTANCE["workloads"]]}
    (tmp_path / "late.yaml").write_text(yaml.safe_dump(late))
    assert provision(tmp_path, "verify", "late.yaml", "plan.json").returncode == 1


def test_a_model_of_isolated_replicas_is_one_class(tmp_path):
    """Four requests/ms of 1 ms on seven slices of one seventh: a GPU carries one request/ms."""
    data = {"version": 1, "kind": "roofline", "name": "roof", "gpu": "a100-80gb", "tflops": 1.0, "gb_per_s": 1e9,
            "models": {"a": [1.0, 1.0]}}
    instance = {"version": 2, "name": "roofs", "policy": {"latency_budget": "half_slo"},
                "fleet": [{"gpu": "a100-80gb"}],
                "performance": "roof.yaml", "workloads": [{"name": "a", "model": "a", "slo_ms": 100, "rate_rps": 3900}]}
    (tmp_path / "roof.yaml").write_text(yaml.safe_dump(data))
    (tmp_path / "roofs.yaml").write_text(yaml.safe_dump(instance))
    solved = provision(tmp_path, "solve", "roofs.yaml", "--out", "plan.json", "--json")
    assert solved.returncode == 0, solved.stderr
    found = json.loads(solved.stdout)
    assert (found["status"], found["gpus"], found["verified"]) == ("optimal", 4, True)


def test_every_method_plans_it_or_says_why_not(tmp_path):
    (tmp_path / "crowded.yaml").write_text(yaml.safe_dump(DATA))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(INSTANCE))
    proving, planning = ("auto", "master", "assignment-cpsat"), ("greedy", "lns")
    told = python(tmp_path, "-c", BY_METHOD, *proving, *planning)
    assert told.returncode == 0, told.stderr
    found = dict(zip((*proving, *planning), map(json.loads, told.stdout.splitlines()), strict=True))
    assert [found[one] for one in proving] == [["optimal", 2, True]] * 3
    assert [found[one] for one in planning] == [["feasible", 2, True]] * 2


def test_sharing_without_an_oracle_is_refused_in_a_line(tmp_path):
    """The same package, but that it declares no way of sharing."""
    package = shutil.copytree(TOY, tmp_path / "package")
    [declared] = package.glob("*.dist-info/entry_points.txt")
    declared.write_text(declared.read_text().replace("[provision.patterns]\ncrowd = toy_crowd:oracle\n", ""))
    (tmp_path / "crowded.yaml").write_text(yaml.safe_dump(DATA))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(INSTANCE))
    refused = provision(tmp_path, "solve", "toy.yaml", package=package)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "provision.patterns" in refused.stderr


def test_its_method_is_listed_and_runs(tmp_path):
    assert "toy" in provision(tmp_path, "methods").stdout
    solved = provision(tmp_path, "solve", "parvagpu-s1", "--method", "toy")
    assert "a toy finds nothing" in solved.stdout


def test_its_importer_and_its_exporter_are_at_the_ends(tmp_path):
    """Lines are imported and planned with, and the plan is exported as lines."""
    (tmp_path / "crowded.txt").write_text("a 1.0\nb 2.0\n")
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(INSTANCE))
    imported = provision(tmp_path, "import", "lines", "crowded.txt", "--out", "crowded.yaml")
    assert (imported.returncode, imported.stdout.splitlines()[0]) == (0, "2 models"), imported.stderr
    assert yaml.safe_load((tmp_path / "crowded.yaml").read_text())["models"] == DATA["models"]
    assert provision(tmp_path, "solve", "toy.yaml", "--out", "plan.json").returncode == 0
    exported = provision(tmp_path, "export", "toy.yaml", "plan.json", "--to", "names", "--out", "out")
    assert exported.returncode == 0, exported.stderr
    lines = (tmp_path / "out/names.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"one", "two", "three"}


def test_without_it_its_files_are_refused_in_a_line(tmp_path):
    (tmp_path / "crowded.yaml").write_text(yaml.safe_dump(DATA))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(INSTANCE))
    refused = subprocess.run([sys.executable, "-m", "provision", "solve", "toy.yaml"], cwd=tmp_path,
                             capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1

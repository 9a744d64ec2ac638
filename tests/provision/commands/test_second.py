"""``verify --independent`` and ``solve --check``: both verdicts, in words and as JSON, and the exit code of both."""

import json

import pytest

from provision.cli import main
from provision.instances.ledger.ledger import ledger

SUMMARY = {"verdict", "gpus", "cost_per_hour", "faults", "not_decided", "confidence", "replays"}
SHOP = """
version: 2
name: shop
policy: {safety: 0.9}
fleet: [{gpu: a100-80gb, price_per_hour: 2.0}]
performance: parvagpu-a100
workloads: [{name: w, model: mobilenetv2, slo_ms: 60, rate_rps: 150}]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(ledger()["parvagpu-s1"].plan.model_dump_json())


def test_both_verdicts_side_by_side(capsys):
    assert main(["verify", "parvagpu-s1", "plan.json", "--independent"]) == 0
    out = capsys.readouterr().out
    assert "\nholds: " in out and "\nindependently: holds, 2 GPUs, 10.24 $ per hour" in out
    assert main(["verify", "parvagpu-s1", "plan.json", "--independent", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and set(found["independent"]) == SUMMARY and found["independent"]["verdict"] == "holds"


def test_a_violation_that_either_finds_is_one(capsys):
    plan = json.loads(ledger()["parvagpu-s1"].plan.model_dump_json())
    plan["gpus"].pop()
    with open("less.json", "w") as file:
        json.dump(plan, file)
    assert main(["verify", "parvagpu-s1", "less.json", "--independent"]) == 1
    assert "violated: resnet50: 0 of 829 requests/s are routed" in capsys.readouterr().out


def test_solve_asks_the_second_verifier(tmp_path, capsys):
    (tmp_path / "shop.yaml").write_text(SHOP)
    assert main(["solve", "shop.yaml", "--check", "--no-replay", "--json", "--time-limit", "5"]) == 0
    second = json.loads(capsys.readouterr().out)["independent"]
    assert second["verdict"] == "holds"
    assert {one["name"] for one in second["replays"]} == {"w"}
    assert all(one["late_high"] <= 0.01 and one["limit_ms"] == pytest.approx(54) for one in second["replays"])
    assert main(["solve", "shop.yaml", "--check", "--no-replay", "--time-limit", "5"]) == 0
    assert "independently: holds" in capsys.readouterr().out

"""Careless mistakes, one at a time: each is answered by exit code 2 and one line that says where and what to write."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from provision.cli import main

SHOP = {
    "version": 2, "name": "shop",
    "fleet": [{"gpu": "a100-80gb", "price_per_hour": 0.9, "count": 4}],
    "performance": ["parvagpu-a100"],
    "workloads": [
        {"name": "search", "model": "bert", "slo_ms": 500, "rate_rps": 120},
        {"name": "tags", "model": "resnet50", "slo_ms": 100, "rate_rps": 250},
    ],
}
GONE = "(the field is left out)"
FIELDS = [
    ("version", 7, "version"),
    ("version", "two", "version"),
    ("name", GONE, "name: is missing; add it"),
    ("name", "", "name"),
    ("fleet", GONE, "fleet: is missing; add it"),
    ("fleet", [], "fleet"),
    ("fleet", "a100-80gb", "fleet: should be a list (got 'a100-80gb')"),
    ("workloads", [], "workloads"),
    ("workloads", {"search": {}}, "workloads: should be a list"),
    ("performance", "mine.yaml", "neither shipped data"),
    ("performance", ["parvagpu-a1000"], "did you mean 'parvagpu-a100'?"),
    ("objective", "cheapest", "objective"),
    ("objective", "min_costs", "did you mean 'min_cost'?"),
    ("workload", [], "did you mean 'workloads'?"),
    ("fleet.0.gpu", "a100", "unknown GPU type 'a100'"),
    ("fleet.0.gpu", "h100", "did you mean 'h100-80gb'?"),
    ("fleet.0.gpu", "rtx6000", "provision gpus --add FILE adds a type of yours"),
    ("fleet.0.gpu", GONE, "fleet[0].gpu: is missing; add it"),
    ("fleet.0.count", -1, "fleet[0].count"),
    ("fleet.0.count", 2.5, "fleet[0].count"),
    ("fleet.0.count", "four", "fleet[0].count"),
    ("fleet.0.price_per_hour", "0.90$", "fleet[0].price_per_hour: should be a valid number (got '0.90$')"),
    ("fleet.0.price_per_hour", -1, "fleet[0].price_per_hour"),
    ("fleet.0.price", "aws", "price and price_per_hour are both given; keep one"),
    ("fleet.0.prise_per_hour", 1, "did you mean 'price_per_hour'?"),
    ("fleet.0.mig", "maybe", "fleet[0].mig"),
    ("fleet.0", {"gpu": "t4", "mig": True}, "GPU type t4 has no MIG; leave mig out or set it to false"),
    ("fleet.0", {"gpu": "a100-80gb", "price": "amazon"}, "use one of aws.on_demand"),
    ("fleet.0", {"gpu": "rtx2060", "price": "aws"}, "the shipped table has none for it, or write price_per_hour"),
    ("fleet.0", "a100-80gb", "fleet[0]: should be fields with values (got 'a100-80gb'); write {gpu: a100-80gb}"),
    ("workloads.0.model", "bret", "did you mean 'bert'?"),
    ("workloads.0.model", GONE, "workloads[0].model: is missing; add it"),
    ("workloads.0.slo_ms", 0, "workloads[0].slo_ms"),
    ("workloads.0.slo_ms", "500ms", "workloads[0].slo_ms: should be a valid number (got '500ms')"),
    ("workloads.0.slo_ms", GONE, "workloads[0].slo_ms: is missing; add it"),
    ("workloads.0.slo", 500, "workloads[0].slo: should be fields with values (got 500); its fields are "),
    ("workloads.0.rate_rps", -3, "workloads[0].rate_rps"),
    ("workloads.0.rate_rps", "120", "workloads[0].rate_rps"),
    ("workloads.0.rate_rps", float("nan"), "workloads[0].rate_rps"),
    ("workloads.0.rate_rps", float("inf"), "workloads[0].rate_rps"),
    ("workloads.0.rate", 120, "did you mean 'rate_rps'?"),
    ("workloads.0.min_replicas", 1.5, "workloads[0].min_replicas"),
    ("workloads.0.max_replicas", 0, "workloads[0].max_replicas"),
    ("workloads.0.max_share_per_gpu", 50, "workloads[0].max_share_per_gpu"),
    ("workloads.0.variants", "bert", "workloads[0].variants: should be a list"),
    ("workloads.0.arrivals", "bursty", "workloads[0].arrivals"),
    ("workloads.0.arrivals", {"process": "posson"}, "did you mean 'poisson'?"),
    ("workloads.1.name", "search", "search"),
    ("policy", {"safety": 90}, "policy.safety: should be less than or equal to 1 (got 90); did you mean 0.9?"),
    ("policy", {"saftey": 0.9}, "did you mean 'safety'?"),
    ("policy", {"headroom": -1}, "policy.headroom"),
    ("policy", {"headroom": 20}, "(got 20); did you mean 0.2?"),
    ("policy", {"latency_budget": "queueng"}, "did you mean 'queueing'?"),
    ("policy", {"survive": 1}, "policy.survive: should be fields with values (got 1); write {gpu_failures: 1}"),
    ("policy", {"survive": {"gpus": 1}}, "policy.survive.gpus: unknown field; remove it or check its spelling"),
    ("policy", {"survive": {"gpu_failure": 1}}, "did you mean 'gpu_failures'?"),
    ("policy", {"percentile": 0.99}, "(got 0.99); did you mean 99?"),
    ("policy", {"routing": "roundrobin"}, "did you mean 'round_robin'?"),
    ("policy", "queueing", "policy: should be fields with values (got 'queueing'); its fields are "),
    ("policy", {"even_replicas": "sure"}, "policy.even_replicas"),
    ("price", {"a100": 3}, "price"),
    ("workflows", [{"name": "app", "stages": [["search"], ["car"]]}], "car"),
]
LINES = [
    ("solve", "INSTANCE"),
    ("solve nothing.yaml", "nothing.yaml: no such file"),
    ("solve shop.yaml --methd auto", "did you mean '--method'?"),
    ("solve shop.yaml --method patern", "unknown method 'patern'"),
    ("solve shop.yaml --time-limit 5s", "--time-limit: should be a number (got '5s')"),
    ("solve shop.yaml --time-limit -1", "--time-limit: should be above 0 (got '-1')"),
    ("solve shop.yaml --out there/ --method greedy", "there"),
    ("solve shop.yaml --out shop.yaml", "shop.yaml: exists already; choose another name or add --force"),
    ("solve broken.yaml", "broken.yaml:2: not well-formed YAML"),
    ("solve twice.yaml", "key 'name' stands twice; keep one"),
    ("solve empty.yaml", "empty.yaml: holds nothing, not fields"),
    ("solve .", ".: cannot be read"),
    ("verify shop.yaml", "PLAN"),
    ("verify shop.yaml shop.yaml", "shop.yaml: is an instance; give a plan here"),
    ("verify plan.json shop.yaml", "plan.json: is a plan; give an instance here"),
    ("show missing.json", "missing.json"),
    ("what-if shop.yaml", "say what to vary, as --vary rate=0.8:1.4:0.05"),
    ("what-if shop.yaml --vary rate", "rate"),
    ("what-if shop.yaml --vary price.a100=1:3:1", "did you mean 'a100-80gb'?"),
    ("what-if shop.yaml --vary price.a100-8gb=1:3:1", "did you mean 'a100-80gb'?"),
    ("what-if shop.yaml --vary colour=1,2", "colour"),
    ("simulate shop.yaml plan.json --seconds 0", "--seconds: should be above 0 (got '0')"),
    ("compare shop.yaml --methods greedyy", "did you mean 'greedy'?"),
    ("compare shop.yaml --methods greedy --out t.xls", "t.xls: a comparison is written as .csv, .tex, .png, .svg"),
    ("compare shop.yaml --methods greedy --seeds 0", "--seeds: should be at least 1"),
    ("report shop.yaml --out report.html --rate -1", "--rate: should be above 0 (got '-1')"),
    ("defragment state.yaml --free 1 --max-moves -1", "--max-moves: should be at least 0 (got '-1')"),
    ("apply plan.json --via kubernetes --nodes a --within nan", "--within: should be a number (got 'nan')"),
    ("export plan.json --to kubernets --out k", "did you mean 'kubernetes'?"),
    ("import csv m.csv --gpu l4", "--out"),
    ("import csv m.csv --gpu l44 --out m.yaml", "did you mean 'l4'?"),
    ("import csv no.csv --gpu l4 --out m.yaml", "no.csv: cannot be read"),
    ("import csv notes.csv --gpu l4 --out m.yaml", "column 'batch' is missing; it has"),
    ("import csv m.csv --gpu l4 --columns batch --out m.yaml", "write FIELD=COLUMN"),
    ("import vllmm x --out y", "did you mean 'vllm'?"),
    ("init here --gpu l5 --yes", "unknown GPU type 'l5'"),
    ("gpus --add shop.yaml", "shop.yaml: is an instance; give a GPU type here"),
    ("bench parvagpus", "did you mean 'parvagpu'?"),
    ("--json instances", "--json stands before the verb; options come after it, as in provision instances --json"),
    ("planz shop.yaml", "planz"),
]


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The folder at hand: an instance, a plan, tables, and files that are nothing."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(yaml.safe_dump(SHOP))
    Path("plan.json").write_text('{"version": 1, "instance": "shop", "method": "me", "gpus": []}')
    Path("m.csv").write_text("batch,latency_ms\n1,4\n")
    Path("notes.csv").write_text("who,what\nme,this\n")
    Path("broken.yaml").write_text("name: a\n  fleet: [\n")
    Path("twice.yaml").write_text("name: a\nname: b\n")
    Path("empty.yaml").write_text("")


def _told(capsys):
    """The one line that was said."""
    out, err = capsys.readouterr()
    assert "Traceback" not in err + out and err.count("\n") == 1 and err.startswith("error: "), err
    assert len(err) < 700 and "pydantic" not in err and "NoneType" not in err
    return err


@pytest.mark.parametrize(("where", "value", "said"), FIELDS, ids=lambda one: str(one)[:40])
def test_a_mistake_in_a_file_is_one_line(shop, where, value, said, capsys):
    content = copy.deepcopy(SHOP)
    *path, last = [int(part) if part.isdecimal() else part for part in where.split(".")]
    inside = content
    for part in path:
        inside = inside[part]
    if value == GONE:
        del inside[last]
    else:
        inside[last] = value
    Path("shop.yaml").write_text(yaml.safe_dump(content))
    assert main(["solve", "shop.yaml", "--method", "greedy", "--no-replay"]) == 2
    told = _told(capsys)
    assert "shop.yaml" in told and said in told


@pytest.mark.parametrize(("line", "said"), LINES)
def test_a_mistake_on_the_command_line_is_one_line(shop, line, said, capsys):
    assert main(line.split()) == 2
    assert said in _told(capsys)


def test_there_are_enough_of_them():
    assert len(FIELDS) + len(LINES) >= 75


def test_a_plan_of_another_instance_is_judged_to_its_last_line(tmp_path, capsys):
    """Also when it serves workloads that the instance does not have: what is wrong is listed, and the exit code is 1.
    """
    shop, plan = tmp_path / "shop.yaml", tmp_path / "plan.json"
    shop.write_text(yaml.safe_dump(SHOP))
    replica = {"workload": "serch", "batch": 4, "processes": 1, "sm_share": 1.0, "rate_rps": 120.0}
    for gpu in ("a100-80gb", "a1000"):
        plan.write_text(json.dumps({"version": 1, "instance": "shop", "gpus": [
            {"gpu": gpu, "mig": True, "slices": [{"profile": "1g.10gb", "start": 0, "replicas": [replica]}]}]}))
        assert main(["verify", str(shop), str(plan)]) == 1
        assert "workload search: 0 of 120 requests/s" in capsys.readouterr().out
        assert main(["explain", str(shop), str(plan)]) == 0
        assert " inf " not in capsys.readouterr().out


def test_replan_names_its_own_options(shop, capsys):
    for options, said in ((["--rate-of", "nope=3"], "--rate-of: the instance has no workload 'nope'"),
                          (["--label", "model"], "--label: asks a Prometheus server; add --prometheus URL")):
        assert main(["replan", "shop.yaml", "plan.json", *options]) == 2
        assert said in capsys.readouterr().err


def test_a_gpu_type_is_printed_as_json_if_asked(capsys):
    assert main(["gpus", "--print", "t4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "t4"

"""GPUs on nodes: dealing against brute force, plans that keep every rule, what verify finds, and bad input."""

import itertools
import json

import numpy as np
import pytest
from tiny_plans import BIG, SMALL, make_instance, plan, replica

import provision
from provision.cli import main
from provision.instances.read import write
from provision.models.plans.disturbance import disturbance
from provision.models.plans.plan import Slice
from provision.placing.deal import deal
from provision.verification.deployment import misplaced
from provision.verification.second import second_opinion
from provision.verification.verify import verify

GPU = "a100-80gb"
NODES = [{"name": "a", "gpu": GPU, "gpus": 2, "zone": "east"}, {"name": "b", "gpu": GPU, "gpus": 1, "zone": "east"},
         {"name": "c", "gpu": GPU, "gpus": 2, "zone": "west", "pool": "prod"}]
TWO = [{"name": "a", "model": "m", "slo_ms": 30.0, "rate_rps": 400.0},
       {"name": "b", "model": "m", "slo_ms": 30.0, "rate_rps": 200.0}]


def placed(rules, workloads=TWO, nodes=NODES, **changes):
    return make_instance(workloads=workloads, places={"nodes": nodes} | rules, **changes)


def drawn(seed):
    """A plan of up to four GPUs for two workloads, and a few rules."""
    rng = np.random.default_rng(seed)
    rules = {}
    if rng.random() < 0.4:
        rules["spread"] = [{"workload": str(rng.choice(["a", "b"])), "over": str(rng.choice(["zone", "node"])),
                            "at_least": 2}]
    if rng.random() < 0.3:
        rules[str(rng.choice(["together", "apart"]))] = [
            {"workloads": ["a", "b"], "on": str(rng.choice(["zone", "node"]))}]
    if rng.random() < 0.3:
        rules["within"] = [{"workload": str(rng.choice(["a", "b"])), "zones": [str(rng.choice(["east", "west"]))]}]
    if rng.random() < 0.3:
        rules["survive"] = {str(rng.choice(["zone", "node"])): 1}
    if rng.random() < 0.2:
        rules["quotas"] = [{"tenant": "t", "workloads": ["b"], "at_most": 2}]
    instance, gpus = placed(rules), []
    for _ in range(int(rng.integers(1, 5))):
        pieces = [Slice(profile="3g.40gb", start=start, replicas=(
            replica(100.0, workload=str(rng.choice(["a", "b"])), batch=8, processes=2),)) for start in (0, 4)]
        gpus += plan(*pieces[: int(rng.integers(1, 3))]).gpus
    return instance, plan().model_copy(update={"gpus": tuple(gpus)})


def on(plan, nodes):
    gpus = [gpu.model_copy(update={"node": node}) for gpu, node in zip(plan.gpus, nodes, strict=True)]
    return plan.model_copy(update={"gpus": tuple(gpus)})


def about_places(instance, plan):
    """What the verifier says of nodes and losses; such plans need not serve what is asked."""
    return [one.message for one in verify(instance, plan).violations
            if one.kind == "place" or "the loss" in one.message]


def test_a_plan_is_dealt_wherever_some_dealing_keeps_the_rules():
    dealt = 0
    for seed in range(120):
        instance, plan = drawn(seed)
        possible = any(not about_places(instance, on(plan, nodes))
                       for nodes in itertools.product("abc", repeat=len(plan.gpus)))
        found, reason = deal(instance, plan, 10)
        assert (found is not None) is possible, seed
        assert found is None or about_places(instance, found) == []
        assert found is not None or reason
        dealt += possible
    assert 20 < dealt < 110


@pytest.mark.parametrize(("rules", "gpus"), [
    ({}, 1),
    ({"spread": [{"workload": "a", "over": "zone", "at_least": 2}]}, 2),
    ({"apart": [{"workloads": ["a", "b"]}]}, 2),
    ({"quotas": [{"tenant": "t", "workloads": ["a"], "at_most": 1}, {"tenant": "u", "workloads": ["b"], "at_most": 1}]},
     1),
    ({"survive": {"zone": 1}}, 2),
    ({"survive": {"node": 1}, "within": [{"workload": "b", "zones": ["east"]}]}, 2),
    ({"within": [{"workload": "a", "pools": ["prod"]}], "together": [{"workloads": ["a", "b"], "on": "zone"}]}, 1),
])
def test_plans_keep_every_rule(rules, gpus):
    instance = placed(rules)
    found = provision.solve(instance, time_limit_s=8, replay=False)
    assert found.verified and len(found.plan.gpus) == gpus
    assert list(misplaced(instance.places, found.plan)) == []
    assert found.status == "optimal" or "apart" in rules  # there the bound is that of one GPU


def test_a_rule_that_no_dealing_keeps_is_named():
    nodes = [NODES[0], NODES[2] | {"gpu": "h100-80gb"}]
    instance = placed({"spread": [{"workload": "a", "over": "zone", "at_least": 2}]}, nodes=nodes)
    assert "spread of a over 2 zones" in deal(instance, plan(BIG, SMALL, copies=2), 10)[1]
    assert "the nodes do not hold" in deal(instance, plan(BIG, SMALL, copies=3), 10)[1]


def test_the_fleet_has_no_more_gpus_than_the_nodes():
    busy = [TWO[0] | {"rate_rps": 4000.0}]
    assert provision.solve(placed({}, busy), time_limit_s=8, replay=False).verified
    found = provision.solve(placed({}, busy, NODES[:1]), time_limit_s=8, replay=False)
    assert found.status == "infeasible"


def test_groups_of_gpus_stay_within_a_node(tmp_path, capsys):
    """A type of four GPUs takes four of one node; nodes that are smaller are refused."""
    content = provision.read("mlperf-llama-3.1-8b-server").model_dump(mode="json", exclude_none=True)
    gpu = content["fleet"][0]["gpu"]
    many, base = (int(gpu[0]), gpu[2:]) if gpu[1] == "x" else (1, gpu)
    content["places"] = {"nodes": [{"name": "n", "gpu": base, "gpus": max(many, 1), "count": 20}]}
    instance = provision.Instance(**content)
    found = provision.solve(instance, time_limit_s=20, replay=False)
    assert found.verified and all(one.node is not None for one in found.plan.gpus)
    tiny = make_instance(fleet=[{"gpu": f"2x{GPU}"}, {"gpu": GPU}])
    write(tiny, tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    content["places"] = {"nodes": [{"name": "n", "gpu": GPU, "gpus": 1}]}
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert main(["solve", str(tmp_path / "t.json")]) == 2
    assert "takes 2 GPUs of type a100-80gb on one node, and the largest node has 1" in capsys.readouterr().err


def test_the_verifier_finds_what_breaks_a_rule():
    instance = placed({"spread": [{"workload": "a", "over": "zone", "at_least": 2}], "survive": {"zone": 1},
                       "apart": [{"workloads": ["a", "b"]}], "quotas": [{"tenant": "t", "workloads": ["a"],
                                                                         "at_most": 2}],
                       "within": [{"workload": "a", "zones": ["west"]}]})
    whole = plan(BIG, SMALL, copies=3)
    told = "; ".join(about_places(instance, on(whole, "aab")))
    for words in ("stands in 1 zones", "after the loss of zone east", "within allows west", "its quota is 2"):
        assert words in told
    assert "is on no node" in "; ".join(about_places(instance, whole))
    assert "has 1 GPUs, the plan puts 3 there" in "; ".join(about_places(instance, on(whole, "bbb")))
    assert "there is no node x" in "; ".join(about_places(instance, on(whole, "axc")))


@pytest.mark.parametrize(("rules", "words"), [
    ({"spread": [{"workload": "a", "over": "zone", "at_least": 3}]}, "spread[0].at_least"),
    ({"spread": [{"workload": "aa", "over": "zone", "at_least": 2}]}, "no workload 'aa'"),
    ({"together": [{"workloads": ["a", "b"]}], "apart": [{"workloads": ["b", "a"]}]}, "together on a node and apart"),
    ({"quotas": [{"tenant": "t", "workloads": ["a"], "at_most": 1}],
      "spread": [{"workload": "a", "over": "zone", "at_least": 2}]}, "quotas[0].at_most"),
    ({"within": [{"workload": "a", "zones": ["est"]}]}, "no node is in zone 'est'"),
    ({"nodes": [*NODES, NODES[0]]}, "'a' stands twice"),
    ({"nodes": NODES[:2], "survive": {"zone": 1}}, "survive.zone"),
])
def test_bad_input_is_one_line(rules, words, tmp_path, capsys):
    write(make_instance(workloads=TWO), tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text()) | {"places": {"nodes": NODES} | rules}
    (tmp_path / "p.json").write_text(json.dumps(content))
    assert main(["solve", str(tmp_path / "p.json")]) == 2
    told = capsys.readouterr().err.strip()
    assert words in told and told.count("\n") == 0


def test_what_knows_no_nodes_says_so(tmp_path, capsys):
    write(placed({}), tmp_path / "p.json")
    assert main(["solve", str(tmp_path / "p.json"), "--method", "greedy"]) == 2
    assert "places" in capsys.readouterr().err


def test_a_new_plan_leaves_gpus_on_their_nodes():
    rules = {"spread": [{"workload": "a", "over": "zone", "at_least": 2}]}
    running = provision.solve(placed(rules), time_limit_s=6, replay=False).plan
    more = placed(rules, [TWO[0] | {"rate_rps": 1500.0}, TWO[1]])
    found = provision.replan(more, running, time_limit_s=6)
    assert verify(more, found.plan).ok and found.changes.gpus_removed == 0
    assert {one.node for one in running.gpus} <= {one.node for one in found.plan.gpus}
    moved = on(running, ["a", "c"] if running.gpus[0].node != "a" else ["b", "c"])
    assert disturbance(running, moved).moved > 0 == disturbance(running, running).moved


def test_those_who_are_served_keep_the_rules():
    rules = {"spread": [{"workload": "a", "over": "zone", "at_least": 2}], "apart": [{"workloads": ["a", "b"]}]}
    short = placed(rules, [TWO[0] | {"priority": 1}, TWO[1] | {"rate_rps": 9000.0}])
    found = provision.ration(short, time_limit_s=8)
    assert [one.workload for one in found.short] == ["b"] and found.levels[0].proven
    assert verify(found.instance, found.result.plan).ok
    assert found.instance.places.spread and not found.instance.places.apart


def test_nodes_of_one_kind_are_dealt_by_the_hundred():
    nodes = [{"name": zone, "gpu": GPU, "gpus": 8, "count": 100, "zone": zone} for zone in ("east", "west", "north")]
    instance = placed({"spread": [{"workload": "a", "over": "zone", "at_least": 3}]}, nodes=nodes)
    found = deal(instance, plan(BIG, SMALL, copies=1500), 20)[0]
    assert {one.node.partition("-")[0] for one in found.gpus} == {"east", "west", "north"}
    assert not [line for line in misplaced(instance.places, found) if "node" in line[1]]


def test_the_second_verifier_leaves_nodes_open():
    found = provision.solve(placed({}), time_limit_s=5, replay=False)
    judged = second_opinion(placed({}), found.plan)
    assert "places" in judged.open[0] and judged.verdict != "holds"


def test_the_answer_names_nodes(tmp_path, capsys):
    write(placed({"spread": [{"workload": "a", "over": "zone", "at_least": 2}]}), tmp_path / "p.json")
    line = ["solve", str(tmp_path / "p.json"), "--time-limit", "8", "--out", str(tmp_path / "plan.json")]
    assert main(line) == 0
    assert "Node c: GPU" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "p.json"), str(tmp_path / "plan.json")]) == 0

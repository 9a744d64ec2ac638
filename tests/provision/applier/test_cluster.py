"""``apply --via kubernetes`` against a server that validates by Kubernetes' published schemas; no real cluster."""

import json

import pytest
import yaml
from applier_scenario import instance_of, plan

from provision.applier.cluster import roll
from provision.applier.cluster.api import differing
from provision.applier.locks import locked_state
from provision.cli import main
from provision.exporters.common import render
from provision.instances.read import write
from provision.models.base.clock import Stop, stopping
from provision.models.base.errors import InputError

pytest.importorskip("kubernetes", reason="the client of Kubernetes is not installed (gpu-provision[kubernetes])")
from kube_server import Kube

PLAN = plan([("3g.40gb", 0, {"vision": 1}), ("3g.40gb", 4, {"text": 2})], [("7g.80gb", 0, {"vision": 1})])
OTHER = plan([("4g.40gb", 0, {"vision": 1}), ("3g.40gb", 4, {"text": 2})], [("7g.80gb", 0, {"vision": 1})])
SPLIT = "nvidia.com/mig.config"


@pytest.fixture
def kube(tmp_path, monkeypatch):
    """A cluster with two nodes."""
    made = Kube(["n1", "n2"])
    made.kubeconfig(tmp_path / "config")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(roll, "POLL_S", 0.01)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    yield made
    made.close()


def applied(state, wanted=PLAN, **options):
    return roll.apply(instance_of(wanted), wanted, ["n1"], state, **{"within_s": 20} | options)


def test_exactly_the_objects_of_the_export_stand(kube, tmp_path):
    outcome = applied(tmp_path / "s")
    assert outcome.outcome == "applied"
    files = render(PLAN, "kubernetes", instance_of(PLAN))
    texts = [files[name] for name in ("mig-config.yaml", "claims.yaml", "deployments.yaml", "services.yaml")]
    exported = [one for text in texts for one in yaml.safe_load_all(text)]
    assert len(exported) == len(kube.objects) - 2
    for one in exported:
        namespace = one["metadata"].get("namespace", "default")
        assert kube.objects[one["kind"], namespace, one["metadata"]["name"]]["spec_of"] == one
    assert kube.labels("n1")[SPLIT + ".state"] == "success" and kube.labels("n2") == {}
    dry = [request for request in kube.requests if request[0] == "dry"]
    assert kube.requests[: len(dry)] == dry and len(dry) * 2 == len(kube.requests)


def test_what_the_server_refuses_in_the_dry_run_changes_nothing(kube, tmp_path):
    kube.refused = "Deployment"
    with pytest.raises(InputError, match=r"the server refuses: .*exceeded quota"):
        applied(tmp_path / "s")
    assert {kind for kind, *_ in kube.objects} == {"Node"} and kube.labels("n1") == {}
    with pytest.raises(InputError, match="its namespace is not there"):
        applied(tmp_path / "s", namespace="nowhere")


@pytest.mark.parametrize("what", ["partitioning fails", "pods never start"])
def test_a_failure_takes_all_back(kube, tmp_path, what):
    """Over an earlier plan, whose objects and labels are those that stand afterwards."""
    applied(tmp_path / "s")
    before = {key: one.get("spec_of") for key, one in kube.objects.items()}
    if what == "pods never start":
        kube.waiting = type("Never", (dict,), {"get": lambda self, key: 9 if key[0] == "Deployment" else 0})()
    else:
        kube.partitions = "failed"
    outcome = applied(tmp_path / "s", OTHER, within_s=0.3)
    said = "could not partition it" if kube.partitions == "failed" else "0 of 1 pods available"
    assert said in outcome.failure
    assert {key: one.get("spec_of") for key, one in kube.objects.items()}.keys() == before.keys()
    assert outcome.outcome == ("unrestored" if kube.partitions == "failed" else "restored")
    claims = [key for key in before if key[0] == "ConfigMap"]
    assert [kube.objects[key]["data"] for key in claims] == [before[key]["data"] for key in claims]


def test_a_run_is_rolled_back(kube, tmp_path):
    applied(tmp_path / "s")
    outcome = roll.rollback(tmp_path / "s")
    assert outcome.outcome == "restored" and {kind for kind, *_ in kube.objects} == {"Node"}
    assert "provision/node" not in kube.labels("n1") and SPLIT not in kube.labels("n1")


def test_the_commands(kube, tmp_path, capsys):
    write(PLAN, tmp_path / "plan.json")
    write(instance_of(PLAN), tmp_path / "instance.json")
    common = ["--via", "kubernetes", "--yes", "--state", str(tmp_path / "s")]
    line = ["apply", str(tmp_path / "plan.json"), "--instance", str(tmp_path / "instance.json"), *common]
    assert main(line) == 2
    assert "--nodes: give 1 different nodes, in the order scenario-a100-80gb-mig-0" in capsys.readouterr().err
    assert main([*line, "--nodes", "n9"]) == 2
    assert "node n9: the cluster has none of this name" in capsys.readouterr().err
    assert main([*line, "--nodes", "n1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "applied"
    assert main(["rollback", *common]) == 0
    assert capsys.readouterr().out.endswith("restored: the former layout stands\n")
    assert main(["apply", str(tmp_path / "plan.json"), "--nodes", "n1", "--yes"]) == 2
    assert "--nodes: is for --via kubernetes" in capsys.readouterr().err
    assert main([*line, "--nodes", "n1", "--no-adopt"]) == 2
    assert "--adopt: is for this machine's GPUs" in capsys.readouterr().err
    assert main(["rollback", "--context", "other", "--yes"]) == 2
    assert "--context: is for --via kubernetes" in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "said"), [
    ((), "stopped: nothing was changed"), (("apply a",), "stopped on the way: provision rollback --via kubernetes")])
def test_what_a_stop_leaves_is_told(monkeypatch, capsys, steps, said):
    """Before the first step there is nothing to go back from; going back would undo the run before."""
    def stopped(*given, report, **more):
        for one in steps:
            report(one)
        raise KeyboardInterrupt

    monkeypatch.setattr(roll, "rollback", stopped)
    assert main(["rollback", "--via", "kubernetes", "--yes"]) == 130
    assert said in capsys.readouterr().err


def test_a_run_waits_only_if_told(kube, tmp_path, capsys):
    with locked_state(tmp_path / "s"):
        assert main(["rollback", "--via", "kubernetes", "--yes", "--state", str(tmp_path / "s")]) == 2
        assert "another applier is at work" in capsys.readouterr().err
        with stopping(Stop()) as stop:
            stop.ask(2)
            with pytest.raises(KeyboardInterrupt):
                roll.rollback(tmp_path / "s", wait=True)


def test_where_an_object_differs_is_told():
    assert differing({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "c": 3}], "d": 4}) is None
    assert differing({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "a[1].b"
    assert differing({"a": [1]}, {"a": [1, 2]}) == "a"

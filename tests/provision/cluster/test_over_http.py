"""The verbs that look at what runs as jobs of the service."""

import json

import pytest
from kube_server import A100, node, pod, replica_set
from served import Client, served

from provision import InputError, Instance, Plan, simulate
from provision.cluster.importers import read_kubernetes


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(tmp_path_factory.mktemp("service")) as address:
        yield Client(address)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Three whole A100s, each with a replica of a model that shares well."""
    objects = [node("n1", A100, 3), replica_set("bert")]
    objects += [pod(f"bert-{number}", "n1", "nvidia.com/gpu", "bert",
                    notes={"model": "bert", "slo-ms": 500, "rate-rps": 30}) for number in range(3)]
    path = tmp_path_factory.mktemp("state") / "o.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return read_kubernetes(path).model_dump(mode="json", exclude_none=True)


def test_a_recommendation_is_a_job(client, state):
    found = client.run({"verb": "recommend", "state": state, "time_limit_s": 10})
    assert found["status"] == "optimal" and found["target_gpus"] == 1 and found["plan"]["gpus"]


def test_moves_are_a_job(client, state):
    assert client.run({"verb": "defragment", "state": state, "free": 1})["status"] == "impossible"


def test_a_layout_is_a_job_without_an_instance(client):
    found = client.run({"verb": "layout", "gpu": "a100-80gb", "profiles": ["3g.40gb", "4g.40gb"]})
    assert found["legal"] and found["order"] == ["4g.40gb", "3g.40gb"]
    with pytest.raises(InputError, match="has no profile"):
        client.run({"verb": "layout", "gpu": "a100-80gb", "profiles": ["9g"]})


def test_a_calibration_is_a_job(client):
    instance = {"version": 2, "name": "one", "performance": "parvagpu-a100", "fleet": [{"gpu": "a100-80gb"}],
                "workloads": [{"name": "see", "model": "resnet50", "slo_ms": 100, "rate_rps": 200}]}
    plan = client.run({"verb": "solve", "instance": instance, "method": "greedy", "time_limit_s": 5})["plan"]
    job = {"verb": "calibrate", "instance": instance, "plan": plan}
    for factor in (1.0, 1.5):
        report = simulate(Instance.model_validate(instance), Plan(**plan), 30, service_factor=factor)
        seen = {"window_s": 60, "requests": 5000, "p50_ms": [report.workloads[0].p50.mean_ms] * 3}
        found = client.run(job | {"observed": {"see": seen}})
        assert found["ok"] is (factor == 1.0)
        assert [one["name"] for one in found["performance"]] == ([] if found["ok"] else ["parvagpu-a100-calibrated"])
    with pytest.raises(InputError, match="observed"):
        client.run(job)
    with pytest.raises(InputError, match="no workload 'x'"):
        client.run(job | {"observed": {"x": {"window_s": 60, "requests": 5000}}})

"""``recommend`` and ``defragment`` as jobs of the service."""

import json

import pytest
from kube_server import A100, node, pod, replica_set
from served import Client, served

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

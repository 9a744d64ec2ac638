"""KServe's and Ray Serve's own schemas accept the exports.

``../shared/data/excerpts/schemas`` has excerpts of them with the fields that exports write. ``PROVISION_CRDS`` may
name a folder with KServe's whole definitions (config/crd/full of github.com/kserve/kserve); an installed ``ray[serve]``
is asked too.
"""

import json
import os
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from export_plans import exported

EXCERPTS = Path(__file__).resolve().parents[4] / "shared/data/excerpts/schemas"
CRDS = Path(os.environ.get("PROVISION_CRDS", EXCERPTS))
CASES = [(seed, 8) for seed in (0, 1, 2, 4)]
KINDS = {"InferenceService": "inferenceservices", "InferenceGraph": "inferencegraphs"}
NEEDS_CRDS = pytest.mark.skipif(not CRDS.is_dir(), reason="KServe's definitions are not in shared/")
NEEDS_EXCERPTS = pytest.mark.skipif(not EXCERPTS.is_dir(), reason="Ray Serve's schema is not in shared/")
OPEN = "x-kubernetes-preserve-unknown-fields"
WORDS = ("properties", "items", "additionalProperties")


def closed(schema):
    """An OpenAPI schema of Kubernetes as a JSON schema that refuses fields it does not name."""
    if "x-kubernetes-int-or-string" in schema:
        return {"type": ["integer", "string"]}
    made = {key: value for key, value in schema.items() if key not in WORDS}
    if "properties" in schema:
        made["properties"] = {name: closed(one) for name, one in schema["properties"].items()}
        made["additionalProperties"] = schema.get(OPEN, False)
    for word in WORDS[1:]:
        if isinstance(schema.get(word), dict):
            made[word] = closed(schema[word])
    return made


@cache
def definition(kind, version):
    """A validator of a kind of object as its definition has it; metadata is Kubernetes' own."""
    path = CRDS / f"serving.kserve.io_{KINDS[kind]}.yaml"
    versions = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    (found,) = (one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == version)
    schema = closed(found)
    return jsonschema.Draft202012Validator(schema | {"properties": schema["properties"] | {"metadata": {}}})


@NEEDS_CRDS
@pytest.mark.parametrize("case", CASES)
def test_kserve_accepts_its_objects(case):
    files = exported("kserve", case)[2]
    found = [one for name in ("services.yaml", "graphs.yaml") for one in yaml.safe_load_all(files[name])]
    assert {one["kind"] for one in found} == set(KINDS)
    for one in found:
        validator = definition(one["kind"], one["apiVersion"].rpartition("/")[2])
        assert validator.is_valid(one), next(validator.iter_errors(one)).message
        assert not validator.is_valid(one | {"spec": one["spec"] | {"predicter": {}}})


@NEEDS_EXCERPTS
def test_ray_serves_schema_accepts_its_configuration():
    validator = jsonschema.Draft202012Validator(json.loads((EXCERPTS / "ray_serve.json").read_text()))
    for case in CASES:
        content = yaml.safe_load(exported("ray-serve", case)[2]["serve.yaml"])
        validator.validate(content)
        (application, *_) = content["applications"]
        assert not validator.is_valid({"applications": [application | {"import_path": 1}]})
        assert not validator.is_valid({"applications": [application | {"replicas": 1}]})


@pytest.mark.parametrize("case", CASES)
def test_ray_serve_accepts_its_configuration(case):
    schema = pytest.importorskip("ray.serve.schema", reason="Ray is not installed (ray[serve])").ServeDeploySchema
    content = yaml.safe_load(exported("ray-serve", case)[2]["serve.yaml"])
    read = schema.model_validate(content)
    assert read.model_dump(exclude_unset=True, mode="json") == content

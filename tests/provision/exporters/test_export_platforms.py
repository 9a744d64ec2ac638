"""Plans for platforms: claims per GPU, KServe, Ray Serve and a Helm chart, held against the rules of their readers."""

import re
import shutil
import subprocess
from collections import Counter

import jsonschema
import kubernetes_validate
import pytest
import yaml
from export_plans import cases, exported, shared_slices
from hypothesis import example, given, settings
from hypothesis import strategies as st

import provision
from provision.exporters.common import TARGETS, prefix
from provision.exporters.kserve import percents
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

KUBERNETES = "1.34"
CHECKED = 6
"""Objects of an export that are held against the schemas of Kubernetes, which takes long."""
NAME = {"type": "string", "maxLength": 53, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}
SERVICE = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "serving.kserve.io/v1beta1"}, "kind": {"const": "InferenceService"},
        "metadata": {"required": ["name"], "properties": {"name": NAME}},
        "spec": {
            "additionalProperties": False, "required": ["predictor"],
            "properties": {"predictor": {
                "additionalProperties": False, "required": ["containers"],
                "properties": {
                    "minReplicas": {"type": "integer", "minimum": 0}, "maxReplicas": {"type": "integer", "minimum": 1},
                    "deploymentStrategy": {"properties": {"type": {"enum": ["Recreate", "RollingUpdate"]}}},
                    "nodeSelector": {"type": "object"}, "resourceClaims": {"type": "array"},
                    "containers": {"contains": {"properties": {"name": {"const": "kserve-container"}}}},
                },
            }},
        },
    },
}
"""The rules of KServe's InferenceService for what is used of it; its pod is held against Kubernetes' schema."""
GRAPH = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "serving.kserve.io/v1alpha1"}, "kind": {"const": "InferenceGraph"},
        "metadata": {"required": ["name"], "properties": {"name": NAME}},
        "spec": {"required": ["nodes"], "properties": {"nodes": {"required": ["root"], "additionalProperties": {
            "additionalProperties": False, "required": ["routerType", "steps"],
            "properties": {
                "routerType": {"enum": ["Sequence", "Splitter", "Ensemble", "Switch"]},
                "steps": {"minItems": 1, "items": {
                    "additionalProperties": False, "required": ["serviceName", "weight"],
                    "properties": {"serviceName": NAME, "weight": {"type": "integer", "minimum": 0, "maximum": 100}},
                }},
            },
        }}}},
    },
}
SERVE = {
    "type": "object", "additionalProperties": False, "required": ["applications"],
    "properties": {"applications": {"items": {
        "additionalProperties": False, "required": ["name", "import_path"],
        "properties": {
            "name": {"type": "string"}, "route_prefix": {"type": "string", "pattern": "^/[^{}]*[^/]$"},
            "import_path": {"type": "string", "pattern": "^[^.:]+(\\.[^.:]+)*[:.][^.:]+$"}, "args": {"type": "object"},
            "deployments": {"items": {
                "additionalProperties": False, "required": ["name"],
                "properties": {
                    "name": {"type": "string"}, "num_replicas": {"type": "integer", "minimum": 1},
                    "max_ongoing_requests": {"type": "integer", "minimum": 1},
                    "ray_actor_options": {
                        "additionalProperties": False,
                        "properties": {
                            "num_gpus": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                            "resources": {"additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
                            "runtime_env": {"properties": {"env_vars": {"additionalProperties": {"type": "string"}}}},
                        },
                    },
                },
            }},
        },
    }}},
}
"""The rules of Ray Serve's configuration for what is used of it."""


def documents(files):
    """The YAML documents of an export by file name."""
    return {name: list(yaml.safe_load_all(text)) for name, text in files.items() if name.endswith(".yaml")}


def alone(*pieces):
    """An instance and a plan of one A100 with one process of its first workload on each slice ``PROFILE@START``."""
    instance = provision.read("parvagpu-s1")
    replica = Replica(workload=instance.workloads[0].name, batch=1, processes=1, rate_rps=1.0)
    places = [piece.split("@") for piece in pieces]
    slices = [Slice(profile=profile, start=int(start), replicas=(replica,)) for profile, start in places]
    return instance, Plan(version=1, instance="one", gpus=(PlannedGpu(gpu="a100-80gb", mig=True, slices=slices),))


@settings(max_examples=5)
@example((0, 8))
@example((1, 8))
@given(cases)
def test_claims_per_gpu(case):
    """All objects pass the schemas; a GPU is a pod, its slices requests of one claim that stand on one GPU."""
    _, plan, files = exported("kubernetes-dra", case)
    if files is None:
        return
    found = documents(files)
    other = ("kustomization.yaml", "gateway.yaml", "istio.yaml")
    for one in (one for name, several in found.items() if name not in other for one in several[:CHECKED]):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    templates = {one["metadata"]["name"]: one["spec"]["spec"]["devices"] for one in found["claims.yaml"]}
    pods = [one["spec"]["template"]["spec"] for one in found["deployments.yaml"]]
    assert Counter(_requested(pod, templates) for pod in pods) == Counter(
        tuple((piece.profile, sum(one.processes for one in piece.replicas)) for piece in gpu.slices if piece.replicas)
        for gpu in plan.gpus if any(piece.replicas for piece in gpu.slices)
    )
    shared = any("config" in devices for devices in templates.values())
    assert ("mig-config.yaml" in files) == (shared and any(gpu_type(gpu.gpu).mig for gpu in plan.gpus))


def _requested(pod, templates):
    """Profile and number of processes of every slice of a pod."""
    (claim,) = pod["resourceClaims"]
    devices = templates[claim["resourceClaimTemplateName"]]
    names = [one["name"] for one in devices["requests"]]
    if len(names) > 1:
        assert devices["constraints"] == [{"requests": names, "matchAttribute": "gpu.nvidia.com/parentUUID"}]
    processes = Counter(one["resources"]["claims"][0]["request"] for one in pod["containers"])
    assert set(processes) == set(names) and len({one["name"] for one in pod["containers"]}) == processes.total()
    return tuple((_profile(one["exactly"]), processes[one["name"]]) for one in devices["requests"])


def _profile(request):
    selectors = request.get("selectors")
    return re.search(r"profile == '(.*)'", selectors[0]["cel"]["expression"])[1] if selectors else "whole"


def test_placements_are_pinned_where_no_slice_needs_mps():
    """A device is taken where it holds the slice's first memory slice and not the one before: there it starts."""
    instance, plan = alone("3g.40gb@4", "1g.10gb@0", "2g.20gb@2")
    found = TARGETS["kubernetes-dra"](plan, instance, 8)
    (template,) = yaml.safe_load_all(found.files["claims.yaml"])
    requests = template["spec"]["spec"]["devices"]["requests"]
    starts = []
    for one in requests:
        words = [each["cel"]["expression"] for each in one["exactly"]["selectors"][1:]]
        taken = {at for at in range(8) if _takes(words, at, gpu_type("a100-80gb").profiles[_profile(one["exactly"])])}
        starts.append(taken)
    assert starts == [{4}, {0}, {2}]
    assert any("DynamicMIG excludes MPSSupport" in note for note in found.notes)
    assert "mig-config.yaml" not in found.files and "mig.config" not in found.files["label-nodes.sh"]
    instance, plan = shared_slices()
    found = TARGETS["kubernetes-dra"](plan, instance, 8)
    assert any("MPSSupport (alpha), which excludes DynamicMIG" in note for note in found.notes)
    assert "memorySlice" not in found.files["claims.yaml"] and "mig-config.yaml" in found.files


def _takes(expressions, start, profile):
    """Whether a device of a profile at a start passes CEL expressions on its memory slices."""
    device = {f"memorySlice{at}" for at in range(start, start + profile.memory)}
    allowed = [re.fullmatch(r"(!?)\(?'(\w+)' in device\.capacity\['gpu\.nvidia\.com'\]\)?", one) for one in expressions]
    return all((one[2] in device) != bool(one[1]) for one in allowed)


@settings(max_examples=5)
@example((0, 8))
@example((1, 8))
@given(cases)
def test_kserve(case):
    """Services, graphs and claims pass their schemas; processes of a slice share its claim; graphs deal everything."""
    _, plan, files = exported("kserve", case)
    if files is None:
        return
    found = documents(files)
    for one in found["claims.yaml"][:CHECKED]:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    pods = Counter()
    for number, one in enumerate(found["services.yaml"]):
        jsonschema.validate(one, SERVICE)
        predictor = one["spec"]["predictor"]
        assert predictor["minReplicas"] == predictor["maxReplicas"]
        specification = {name: predictor[name] for name in ("nodeSelector", "containers", "resourceClaims")}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": specification}
        if number < CHECKED:
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        pods[predictor["resourceClaims"][0]["resourceClaimName"]] += predictor["minReplicas"]
    served = [piece for gpu in plan.gpus for piece in gpu.slices if piece.replicas]
    assert sorted(pods.values()) == sorted(sum(one.processes for one in piece.replicas) for piece in served)
    assert set(pods) == {one["metadata"]["name"] for one in found["claims.yaml"]}
    targets = []
    for one in found["graphs.yaml"]:
        jsonschema.validate(one, GRAPH)
        steps = one["spec"]["nodes"]["root"]["steps"]
        assert sum(step["weight"] for step in steps) == 100
        targets += [step["serviceName"] for step in steps]
    assert sorted(targets) == sorted(one["metadata"]["name"] for one in found["services.yaml"])


replica = st.tuples(st.floats(0.1, 1000), st.floats(1, 1.5)).map(lambda one: (one[0], one[0] * one[1]))


@example([(10.0, 10.0), (30.0, 30.0)])
@given(st.lists(replica, min_size=1, max_size=120))
def test_percents_overload_nobody(found):
    """Whole percents make a whole, and none is more than its replica can serve; else the plan is refused."""
    total_rps = sum(rate_rps for rate_rps, _ in found)
    try:
        dealt = percents("a", found)
    except provision.InputError as error:
        assert "whole percents" in str(error)
        return
    assert sum(dealt) == 100
    for part, (_, most_rps) in zip(dealt, found, strict=True):
        assert part * total_rps / 100 <= most_rps * (1 + 1e-6)


def test_percents_that_overload_a_replica_are_refused():
    """Three replicas at full load cannot be dealt 33, 33 and 34 percent."""
    assert sorted(percents("a", [(10.0, 11.0)] * 3)) == [33, 33, 34]
    with pytest.raises(provision.InputError, match="whole percents"):
        percents("a", [(10.0, 10.0)] * 3)


@settings(max_examples=5)
@example((0, 8))
@example((1, 8))
@given(cases)
def test_ray_serve(case):
    """The configuration keeps Ray's rules; every replica's actors fit the Ray node of their slice."""
    _, _, files = exported("ray-serve", case)
    content = yaml.safe_load(files["serve.yaml"])
    jsonschema.validate(content, SERVE)
    booked, actors = Counter(), Counter()
    for application in content["applications"]:
        names = [one["deployment"] for one in application["args"]["replicas"]]
        assert names == [one["name"] for one in application["deployments"]]
        for one in application["deployments"]:
            ((place, _),) = one["ray_actor_options"]["resources"].items()
            booked[place] += one["num_replicas"] * one["ray_actor_options"]["num_gpus"]
            actors[place] += one["num_replicas"]
    assert all(0.99 < part <= 1 for part in booked.values())
    started = [one for name, text in files.items() if name.endswith("start-ray.sh") for one in _started(text)]
    assert dict(started) == dict(actors) and len(started) == len(actors)


def _started(script):
    """Slice and actors of every Ray node that a script starts, which is well-formed and starts none without devices."""
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert subprocess.run(["bash", "-s"], input=script, text=True, capture_output=True, check=False).returncode == 1
    return [(name, int(number)) for name, number in re.findall(r"--resources '\{\"(.*)\": (\d+)\}'", script)]


@pytest.mark.parametrize("name", ["bert", "{{ .Files.Get }}"])
def test_helm_chart_says_what_kubernetes_does(name):
    """Rendered with its values the chart is the Kubernetes export; names that look like templates stay names."""
    instance = provision.read("parvagpu-s1")
    workloads = [one.model_copy(update={"name": name}) if one.name == "bert" else one for one in instance.workloads]
    instance = instance.replace(workloads=tuple(workloads))
    plan = provision.solve(instance, "greedy").plan
    chart, plain = (TARGETS[to](plan, instance, 8).files for to in ("helm", "kubernetes"))
    head, values = yaml.safe_load(chart["Chart.yaml"]), yaml.safe_load(chart["values.yaml"])
    assert head["apiVersion"] == "v2" and re.fullmatch(r"\d+\.\d+\.\d+", head["version"])
    assert re.fullmatch(NAME["pattern"], head["name"])
    for file in ("claims.yaml", "deployments.yaml", "services.yaml", "mig-config.yaml"):
        text = re.sub(r"\{\{ index \.Values\.images `([^`]*)` \| quote \}\}",
                      lambda found: f'"registry/{values["images"][found[1]]}:1"', chart[f"templates/{file}"])
        text = text.replace("{{ `{{` }}", "{{")
        wanted = re.sub(r'^( +image: )"?([a-z0-9-]+)"?$', r'\1"registry/\2:1"', plain[file], flags=re.MULTILINE)
        assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all(wanted))
        for one in yaml.safe_load_all(text):
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm on the path")
def test_helm_lint(tmp_path):
    instance = provision.read("parvagpu-s1")
    provision.export(provision.solve(instance, "greedy").plan, "helm", tmp_path / "chart", instance)
    assert subprocess.run(["helm", "lint", "--strict", tmp_path / "chart"], check=False).returncode == 0


@pytest.mark.parametrize("to", ["kubernetes", "kubernetes-dra", "helm", "kserve"])
def test_names_begin_with_the_plan(to):
    """Objects of two plans have no name in common, and every name fits Kubernetes."""
    names = []
    for instance, plan in (_named("first"), _named("x" * 79), _named("x" * 80)):
        begin, files = prefix(plan), TARGETS[to](plan, instance, 8).files
        objects = ("claims", "deployments", "services", "graphs", "mig-config")
        text = "\n---\n".join(text for name, text in files.items() if re.split(r"[/.]", name)[-2] in objects)
        found = re.findall(r"^  name: \"?([^\"\n]+)", text, re.MULTILINE)
        assert found and all(one.startswith(f"{begin}-") and len(one) <= 63 for one in found)
        names.append(set(found))
    assert not names[0] & names[1] and not names[1] & names[2]


def _named(name):
    instance = provision.read("parvagpu-s1").replace(name=name)
    return instance, provision.solve(instance, "greedy").plan

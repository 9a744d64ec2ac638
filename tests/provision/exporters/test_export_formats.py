"""Exported files under the eyes of the parsers of those who read them, for plans of random instances."""

import json
import re
from collections import Counter

import jsonschema
import kubernetes_validate
import pytest
import yaml
from export_plans import cases, exported
from google.protobuf import text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

import provision
from provision.exporters import mig_parted
from provision.exporters.common import TARGETS, prefix
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

KUBERNETES = "1.34"
MIG_PARTED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "mig-configs"],
    "properties": {
        "version": {"const": "v1"},
        "mig-configs": {
            "minProperties": 1,
            "propertyNames": {"pattern": "^[a-z0-9A-Z]([-a-z0-9A-Z_.]{0,61}[a-z0-9A-Z])?$"},
            "additionalProperties": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["devices", "mig-enabled"],
                    "properties": {
                        "devices": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
                        "mig-enabled": {"type": "boolean"},
                        "mig-devices": {
                            "propertyNames": {"pattern": r"^[1-8]g\.[0-9]+gb(\+me)?$"},
                            "additionalProperties": {"type": "integer", "minimum": 1},
                        },
                    },
                    "if": {"properties": {"mig-enabled": {"const": True}}},
                    "then": {"required": ["mig-devices"]},
                    "else": {"not": {"required": ["mig-devices"]}},
                },
            },
        },
    },
}
"""The rules of mig-parted's configuration, version v1."""

MPS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "sharing"],
    "properties": {
        "apiVersion": {"const": "resource.nvidia.com/v1beta1"},
        "kind": {"enum": ["GpuConfig", "MigDeviceConfig"]},
        "sharing": {
            "additionalProperties": False,
            "required": ["strategy", "mpsConfig"],
            "properties": {
                "strategy": {"const": "MPS"},
                "mpsConfig": {
                    "additionalProperties": False,
                    "properties": {
                        "defaultActiveThreadPercentage": {"type": "integer", "minimum": 1, "maximum": 100}
                    },
                },
            },
        },
    },
}
"""The opaque configuration of NVIDIA's DRA driver, as far as it is used."""


def profiles(plan):
    """How many slices of each profile every partitioned GPU has, as a multiset."""
    return Counter(
        (gpu.gpu, frozenset(Counter(piece.profile for piece in gpu.slices).items())) for gpu in plan.gpus if gpu.mig
    )


def configured(content, begin=""):
    """The same of a mig-parted configuration, whose names begin with the plan's prefix, if any, and the GPU type."""
    return Counter(
        (name.removeprefix(begin).rsplit("-mig-", 1)[0], frozenset(entry["mig-devices"].items()))
        for name, entries in content["mig-configs"].items()
        for entry in entries
        for _ in entry["devices"]
        if entry["mig-enabled"]
    )


@settings(max_examples=25)
@given(cases)
def test_mig_parted(case):
    """The YAML keeps the schema and the counts; a device stands in one entry; checkpoints carry the placements."""
    _, plan, files = exported("mig-parted", case)
    assert (files is None) == (not any(gpu.mig for gpu in plan.gpus))
    if files is None:
        return
    content = yaml.safe_load(files.pop("config.yaml"))
    jsonschema.validate(content, MIG_PARTED)
    assert configured(content) == profiles(plan)
    for entries in content["mig-configs"].values():
        devices = [device for entry in entries for device in entry["devices"]]
        assert sorted(devices) == list(range(len(devices))) and len(devices) <= case[1]
    planned_placements = Counter(placements(gpu) for gpu in plan.gpus if gpu.mig)
    found = Counter(restored(device) for text in files.values() for device in json.loads(text)["MigState"]["Devices"])
    assert found <= planned_placements


def placements(gpu):
    """(NVML's profile number, start, size in memory slices) of every slice of a GPU."""
    kinds = gpu_type(gpu.gpu).profiles
    return frozenset(
        (kinds[piece.profile].nvml_profile, piece.start, kinds[piece.profile].memory) for piece in gpu.slices
    )


def restored(device):
    """The same of a device of a checkpoint."""
    assert device["MigMode"] == 1 and device["UUID"].startswith("UUID-OF-GPU-")
    assert all(len(one["ComputeInstances"]) == 1 for one in device["GpuInstances"])
    return frozenset(
        (one["ProfileID"], one["Placement"]["Start"], one["Placement"]["Size"]) for one in device["GpuInstances"]
    )


def a100(*pieces):
    """A plan of one A100-80GB with idle slices ``COMPUTE@START``."""
    names = {"1": "1g.10gb", "2": "2g.20gb", "3": "3g.40gb", "4": "4g.40gb", "7": "7g.80gb"}
    slices = tuple(Slice(profile=names[piece[0]], start=int(piece[2:])) for piece in pieces)
    return Plan(version=1, instance="x", gpus=(PlannedGpu(gpu="a100-80gb", mig=True, slices=slices),))


@pytest.mark.parametrize(
    "pieces",
    ["7@0", "4@0 3@4", "4@0 2@4 1@6", "4@0 1@4 1@5 1@6", "3@0 3@4", "2@0 2@2 3@4", "1@0 1@1 1@2 1@3 3@4",
     "2@0 2@2 2@4 1@6", "1@0 1@1 1@2 1@3 1@4 1@5 1@6"],
)
def test_a_single_way_to_stand_needs_no_checkpoint(pieces):
    """The rows of the MIG user guide's table of A100 configurations whose profiles fit in one way."""
    exported = mig_parted.render(a100(*pieces.split()), None, 8)
    assert set(exported.files) == {"config.yaml"}
    assert not any("cannot carry the placements" in note for note in exported.notes)


@pytest.mark.parametrize("pieces", ["3@4", "3@0", "2@0 1@2 1@3 3@4", "3@0 2@4 1@6", "1@0 1@1 2@2 1@4 1@5 1@6"])
def test_several_ways_to_stand_need_a_checkpoint(pieces):
    """Where the counts leave the starts open, the checkpoint has them, and the notes say which GPU."""
    plan = a100(*pieces.split())
    exported = mig_parted.render(plan, None, 8)
    state = json.loads(exported.files["checkpoint-a100-80gb-mig-0.json"])
    assert state["Version"] == "v1" and set(state) == {"Version", "MigState"}
    assert restored(state["MigState"]["Devices"][0]) == placements(plan.gpus[0])
    numbers = {"1g.10gb": 0, "2g.20gb": 1, "3g.40gb": 2}
    assert Counter(
        one["ComputeInstances"][0]["ProfileID"] for one in state["MigState"]["Devices"][0]["GpuInstances"]
    ) == Counter(numbers[piece.profile] for piece in plan.gpus[0].slices)
    assert any("cannot carry the placements of a100-80gb-mig-0 on GPUs 0" in note for note in exported.notes)


def test_gpus_with_mig_off_are_told_so():
    """Whole GPUs of a type with MIG have a machine of their own on which it is disabled; other types have none."""
    whole = [PlannedGpu(gpu=kind, mig=False, slices=(Slice(profile="whole"),)) for kind in ("a100-80gb", "v100")]
    plan = a100("7@0").model_copy(update={"gpus": (*whole, *a100("7@0").gpus)})
    content = yaml.safe_load(mig_parted.render(plan, None, 8).files["config.yaml"])
    jsonschema.validate(content, MIG_PARTED)
    assert content["mig-configs"] == {
        "a100-80gb-0": [{"devices": [0], "mig-enabled": False}],
        "a100-80gb-mig-0": [{"devices": [0], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}],
    }


def test_double_memory_on_hopper_is_refused():
    """Which compute instance spans an H100's 1g.20gb is not documented; an A100's has the plain one's SMs."""
    for kind, refused in (("h100-80gb", True), ("a100-80gb", False)):
        gpu = PlannedGpu(gpu=kind, mig=True, slices=(Slice(profile="1g.20gb", start=0),))
        plan = Plan(version=1, instance="x", gpus=(gpu,))
        if refused:
            with pytest.raises(provision.InputError, match=r"1g\.20gb on h100-80gb has 26 SMs"):
                mig_parted.render(plan, None, 8)
        else:
            assert "checkpoint-a100-80gb-mig-0.json" in mig_parted.render(plan, None, 8).files


def delay_ms(instance, predicted, together):
    """How long a batch may wait: half of the SLO, less its latency unless it shares a MIG slice."""
    shared = instance.policy.share_slices and (predicted.gpu, predicted.slice) in together
    return max(0.0, instance.workload[predicted.workload].slo_ms / 2 - (0.0 if shared else predicted.latency_ms))


@settings(max_examples=25)
@example((0, 8))
@example((1, 8))
@given(cases)
def test_triton(case):
    """Every replica has one server with a configuration that Triton's own protobuf accepts, ports all different."""
    instance, plan, files = exported("triton", case)
    assert files is not None
    found = Counter()
    for name, text in files.items():
        if not name.endswith("config.pbtxt"):
            continue
        config = text_format.Parse(text, ModelConfig())
        assert name.endswith(f"/models/{config.name}/config.pbtxt")
        group = config.instance_group[0]
        assert group.kind == ModelInstanceGroup.KIND_GPU and list(group.gpus) == [0] and len(config.instance_group) == 1
        assert list(config.dynamic_batching.preferred_batch_size) == [config.max_batch_size]
        found[config.max_batch_size, group.count, config.dynamic_batching.max_queue_delay_microseconds] += 1
    together = {(gpu, position) for gpu, position, piece, _ in plan.replicas() if len(piece.replicas) > 1}
    delays = [int(delay_ms(instance, one, together) * 1000) for one in provision.verify(instance, plan).predictions]
    replicas = [one for _, _, _, one in plan.replicas()]
    assert found == Counter((one.batch, one.processes, us) for one, us in zip(replicas, delays, strict=True))
    check_ports(files)


def check_ports(files):
    """No two servers of a machine listen on the same port."""
    ports = Counter(
        (name.split("/")[0], port)
        for name, text in files.items()
        if name.endswith("serve.sh")
        for port in re.findall(r"port=(\d+)", text)
    )
    assert set(ports.values()) == {1} and all(1024 < int(port) < 65536 for _, port in ports)


ROUTES = ("gateway.yaml", "istio.yaml")
"""Files of kinds that are not Kubernetes' own."""


@settings(max_examples=6)
@example((0, 8), "kubernetes")
@example((1, 8), "kubernetes")
@given(cases, st.sampled_from(["kubernetes", "kubernetes-device-plugin"]))
def test_kubernetes(case, to):
    """All objects pass the schemas of Kubernetes; a slice is a pod, a process a container, each with its device."""
    instance, plan, files = exported(to, case)
    if files is None:
        assert to == "kubernetes-device-plugin" and any(mps(piece) for gpu in plan.gpus for piece in gpu.slices)
        return
    objects = {name: list(yaml.safe_load_all(text)) for name, text in files.items() if name.endswith(".yaml")}
    assert [one["resources"] for one in objects.pop("kustomization.yaml")] == [
        [name for name in ("claims.yaml", "deployments.yaml", "services.yaml") if name in objects]
    ]
    for name in ROUTES:
        objects.pop(name, None)
    for one in (one for several in objects.values() for one in several):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    if "mig-config.yaml" in objects:
        content = yaml.safe_load(objects["mig-config.yaml"][0]["data"]["config.yaml"])
        jsonschema.validate(content, MIG_PARTED)
        assert configured(content, f"{prefix(plan)}-") == profiles(plan)
    templates = {one["metadata"]["name"]: one["spec"]["spec"] for one in objects.get("claims.yaml", ())}
    pods = [one["spec"]["template"]["spec"] for one in objects["deployments.yaml"]]
    assert Counter(signature(pod, templates) for pod in pods) == Counter(
        wanted(piece, instance) for gpu in plan.gpus for piece in gpu.slices if piece.replicas
    )
    assert len({one["metadata"]["name"] for one in objects["deployments.yaml"]}) == len(pods)


def mps(piece):
    """Whether a slice needs MPS."""
    return sum(one.processes for one in piece.replicas) > 1 or any(one.sm_share < 1 for one in piece.replicas)


def wanted(piece, instance):
    """Profile, MPS or not, and (workload, model, batch, percentage) of every process of a slice."""
    processes = Counter()
    for one in piece.replicas:
        percent = f"{100 * one.sm_share:.6g}" if mps(piece) else None
        processes[one.workload, instance.workload[one.workload].model, str(one.batch), percent] += one.processes
    return piece.profile, mps(piece), frozenset(processes.items())


def signature(pod, templates):
    """The same of a pod."""
    environments = [{one["name"]: one["value"] for one in container["env"]} for container in pod["containers"]]
    processes = Counter(
        (one["PROVISION_WORKLOAD"], one["PROVISION_MODEL"], one["PROVISION_BATCH"],
         one.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
        for one in environments
    )
    device, shared = claimed(pod, templates, environments) if templates else limited(pod)
    return device, shared, frozenset(processes.items())


def claimed(pod, templates, environments):
    """Profile and sharing of the device that a pod claims."""
    assert all(one["resources"] == {"claims": [{"name": "slice"}]} for one in pod["containers"])
    (claim,) = pod["resourceClaims"]
    devices = templates[claim["resourceClaimTemplateName"]]["devices"]
    (request,) = devices["requests"]
    selectors = request["exactly"].get("selectors")
    profile = re.fullmatch(
        r"device\.attributes\['gpu\.nvidia\.com'\]\.profile == '(.*)'", selectors[0]["cel"]["expression"]
    )[1] if selectors else "whole"
    assert request["exactly"]["deviceClassName"] == ("mig.nvidia.com" if selectors else "gpu.nvidia.com")
    for config in devices.get("config", ()):
        assert config["requests"] == [request["name"]] and config["opaque"]["driver"] == "gpu.nvidia.com"
        parameters = config["opaque"]["parameters"]
        jsonschema.validate(parameters, MPS)
        assert (parameters["kind"] == "MigDeviceConfig") == bool(selectors)
        largest = parameters["sharing"]["mpsConfig"]["defaultActiveThreadPercentage"]
        held = max(float(one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) for one in environments)
        assert held <= largest < held + 1
    return profile, "config" in devices


def limited(pod):
    """Profile of the extended resource that a pod asks for; the device plugin shares nothing here."""
    (container,) = pod["containers"]
    ((name, count),) = container["resources"]["limits"].items()
    assert count == 1
    return ("whole" if name == "nvidia.com/gpu" else name.removeprefix("nvidia.com/mig-")), False


def test_media_profile_of_the_device_plugin():
    """The plugin writes a dot for the plus of a profile with media engines."""
    files = TARGETS["kubernetes-device-plugin"](*one_slice("1g.10gb+me"), 8).files
    pod = next(yaml.safe_load_all(files["deployments.yaml"]))["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb.me": 1}


@pytest.mark.parametrize("name", ["1e3", "y", "n", "null", "0x1F", "1:30", "~", "true", "a: b", "#x", "- z"])
def test_names_that_yaml_readers_take_for_something_else(name):
    """Names stay text under YAML 1.1 as PyYAML reads it, and are quoted where other readers see more in them."""
    plan, instance = one_slice("1g.10gb", name)
    text = TARGETS["kubernetes"](plan, instance, 8).files["deployments.yaml"]
    found = next(yaml.safe_load_all(text))
    kubernetes_validate.validate(found, KUBERNETES, strict=True)
    value = found["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert value == name
    assert re.search(r"value: [\"']", text.split("PROVISION_WORKLOAD")[1].split("- name")[0])


@pytest.mark.parametrize("name", ["$(PROVISION_MODEL)", "a$b", "$$(x)", "$", "it's $(touch pwned) `id`"])
def test_names_with_dollars_are_not_expanded(name):
    """What Kubernetes makes of a value is the name."""
    plan, instance = one_slice("1g.10gb", name)
    (pod,) = yaml.safe_load_all(TARGETS["kubernetes"](plan, instance, 8).files["deployments.yaml"])
    value = pod["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert re.sub(r"\$(\$|\(([^)]*)\))", lambda found: "$" if found[1] == "$" else "EXPANDED", value) == name


def one_slice(profile, name="bert"):
    """A plan of one replica on one slice with an instance whose workload has this name."""
    instance = provision.read("parvagpu-s1")
    instance = instance.replace(workloads=[instance.workloads[0].model_copy(update={"name": name})])
    slices = (Slice(profile=profile, replicas=(Replica(workload=name, batch=4, rate_rps=1e6),)),)
    return Plan(version=1, instance="x", gpus=(PlannedGpu(gpu="a100-80gb", mig=True, slices=slices),)), instance


@settings(max_examples=25)
@given(cases)
def test_deployment_map(case):
    """Every segment of a plan that is not refused is a row."""
    _, plan, files = exported("parvagpu", case)
    plain = all(gpu.gpu == "a100-80gb" and gpu.mig for gpu in plan.gpus)
    single = all(len(piece.replicas) == 1 for gpu in plan.gpus for piece in gpu.slices)
    assert (files is not None) == (plain and single)
    if files is not None:
        rows = [line.split(",") for line in files["deployment.csv"].splitlines()[1:]]
        found = [(*map(int, row[:2]), row[2], int(row[3]), int(row[5]), int(row[6])) for row in rows]
        assert found == [
            (*divmod(index, case[1]), one.workload, piece.start, one.batch, one.processes)
            for index, _, piece, one in plan.replicas()
        ]

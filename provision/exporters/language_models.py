"""Exports to servers of language models: vLLM with nginx, llm-d, and Dynamo.

All three start vLLM's servers: the arguments of a replica, groups of equal replicas, and notes on names and KV memory
are the same. ``vllm`` writes a script per replica, and nginx's configuration. ``llm_d`` writes values of its model
service's Helm chart, a release per machine, model and size of replica. ``dynamo`` writes a DynamoGraphDeployment per
language model, of a front end and its workers.

Sources: vLLM's documentation of ``vllm serve`` and of its engine's arguments; llm-d-incubation/llm-d-modelservice,
``values.schema.json``; ai-dynamo/dynamo, the types of ``nvidia.com/v1alpha1`` of its operator.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from provision.exporters import routing
from provision.exporters.common import Exported, Node, nodes, prefix, slice_name, slugs, yaml_text
from provision.exporters.mig_parted import LABELLING, node_files, operator_notes
from provision.exporters.pods import NODE_LABEL, kustomization
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import group_of
from provision.models.performance.operators.compose import MEMORY_PART
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

LONGEST = 24
"""The most characters of a workload's slug in names; tools append to them."""
TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
"""vLLM's setting by which separate pools send each other KV caches."""
NAMES = ("Models are named as in the instance: put the Hugging Face name or the path of each in their place. Where "
         "vLLM logs fewer tokens of `GPU KV cache size` than these, the plan counts on more memory than there is: {}.")
QUANTISED = "{} is planned with weights in {}: name a checkpoint of that precision, whose own settings vLLM follows."
ON_LOADING = frozenset({"fp8"})
"""The precisions to which vLLM itself brings weights of 16 bits; others need a checkpoint."""
PLAIN = (None, "bfloat16")
FIRST_PORT = 8000
SCRIPT = """\
#!/usr/bin/env bash
# Serves {workload!a}, {rate:.6g} requests/s, on {profile}, slice {position} of GPU {index} of the plan.
# usage: [MODEL=NAME_OR_PATH] serve.sh DEVICE
set -euo pipefail
export CUDA_VISIBLE_DEVICES="${{1:?give {devices}}}"
exec vllm serve "${{MODEL:-{model}}}" --port={port} \\
  {arguments}
"""
POOLS = ("Separate pools for prompts and answers need a router that asks one of each (vLLM's disaggregated proxy, "
         "llm-d or Dynamo: `--to llm-d`, `--to dynamo`); nginx deals the requests of common pools only.")
VLLM_IMAGE = "vllm/vllm-openai:latest"
PORT, BEHIND_PROXY = 8000, 8200
"""Where servers listen, and where they do behind the sidecar that brings them KV caches."""
ROLES = ("prefill", "decode")
LLM_D_NOTES = (
    "`bash install.sh` installs a release per file of values with the chart llm-d-modelservice of "
    "https://llm-d-incubation.github.io/llm-d-modelservice/ (`helm repo add llm-d-modelservice URL` before).",
    "Pods of one workload have the label `llm-d.ai/model`, by which the InferencePool of llm-d's scheduler selects "
    "them. It sends each request where there is least to do; the plan deals them by the rates in the first lines.",
)
INSTALL = """\
#!/usr/bin/env bash
# Installs the releases of the plan.
set -euo pipefail
{lines}
"""
DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
GRAPHS = "graphs.yaml"
WHOLE_GPUS = "nvidia.com/gpu"
PREFILL = "--is-prefill-worker"
DYNAMO_NOTES = (
    f"`kubectl apply -k .` needs Dynamo's operator, and its image `{DYNAMO_IMAGE}`: `kustomize edit set image "
    f"{DYNAMO_IMAGE}={DYNAMO_IMAGE}:VERSION`.",
    "Every worker group says its requests/s in the annotation `provision/rate-rps`; Dynamo's router sends each request "
    "where there is least to do.",
)


class Servers(NamedTuple):
    """Equal replicas of a language model on a machine.

    ``application`` is what clients ask for: the workload, or of two pools the workflow of both. ``resource`` and
    ``devices`` are Kubernetes' name of the slices, and how many devices a replica has.
    """

    name: str
    application: str
    workload: Workload
    model: str
    node: Node
    replicas: int
    rate_rps: float
    resource: str
    devices: int
    arguments: tuple[str, ...]

    @property
    def pool(self) -> str | None:
        """``prefill`` or ``decode`` where these are separate."""
        return self.workload.tokens.pool if self.workload.tokens else None


def language_models(instance: Instance) -> list[Workload]:
    """The workloads that are language models."""
    return [one for one in instance.workloads if one.tokens]


def left_out(instance: Instance, target: str) -> list[str]:
    """A note on workloads that are no language models. Raises InputError when there is nothing else."""
    others = [one.name for one in instance.workloads if not one.tokens]
    if len(others) == len(instance.workloads):
        raise InputError(f"{target}: serves language models, and the plan has none; use --to kubernetes, triton or "
                         "shell")
    told = f"Not here: {', '.join(others)}, which are no language models; `--to kubernetes` has all workloads."
    return [told] if others else []


def servers(plan: Plan, instance: Instance, gpus_per_node: int) -> tuple[list[Node], list[Servers]]:
    """The machines of a plan, and its servers of language models. Equal servers on one machine are one entry."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    alike: dict[tuple[str, str, str, int], list[tuple[Node, Slice, Replica]]] = {}
    for node in machines:
        for piece, replica in _replicas(node):
            if instance.workload[replica.workload].tokens:
                key = (node.name, replica.workload, f"{instance.model_of(replica)} {piece.profile}", replica.batch)
                alike.setdefault(key, []).append((node, piece, replica))
    short = slugs((one.name for one in instance.workloads), LONGEST)
    return machines, [_together(f"{short[key[1]]}-{number}", instance, several)
                      for number, (key, several) in enumerate(alike.items())]


def _replicas(node: Node) -> Iterator[tuple[Slice, Replica]]:
    yield from ((piece, replica) for _, gpu in node.gpus for piece in gpu.slices for replica in piece.replicas)


def _together(name: str, instance: Instance, several: list[tuple[Node, Slice, Replica]]) -> Servers:
    node, piece, replica = several[0]
    gpus = group_of(piece.profile)
    workload = instance.workload[replica.workload]
    flow = [one.name for one in instance.workflows if workload.name in one.workloads]
    kind = "gpu" if gpus else "mig-" + piece.profile.replace("+", ".")
    return Servers(
        name, flow[0] if flow else workload.name, workload, instance.model_of(replica), node, len(several),
        sum(one.rate_rps for *_, one in several), f"nvidia.com/{kind}", gpus or 1,
        tuple(vllm_arguments(instance, node.gpus[0][1].gpu, piece, replica)),
    )


def memory_notes(plan: Plan, instance: Instance) -> Iterator[str]:
    """Yield what users must put in: names of models, and checkpoints; and the KV memory on which each replica counts.
    """
    found: dict[str, None] = {}
    checkpoints: dict[str, None] = {}
    for at, _, piece, replica in plan.replicas():
        if instance.workload[replica.workload].tokens:
            model, gpu = instance.model_of(replica), plan.gpus[at].gpu
            data = _data(instance, gpu, model).models[model]
            found[f"{data.slices[piece.profile].kv_tokens} for {model} on {piece.profile} of {gpu}"] = None
            if data.precision not in PLAIN and data.precision not in ON_LOADING:
                checkpoints[QUANTISED.format(model, data.precision)] = None
    yield NAMES.format(", ".join(found))
    yield from checkpoints


def _data(instance: Instance, gpu: str, model: str) -> TokenModels:
    data = instance.performance_of(gpu, model)
    assert isinstance(data, TokenModels)
    return data


def vllm_arguments(instance: Instance, gpu: str, piece: Slice, replica: Replica) -> Iterator[str]:
    """The arguments of ``vllm serve`` after the model, without a port. Raises InputError if the plan is for a server
    that computes prompts alone, which vLLM does not.
    """
    model, tokens = instance.model_of(replica), instance.workload[replica.workload].tokens
    data = _data(instance, gpu, model)
    assert tokens is not None
    if data.engine.prompts_alone:
        raise InputError(f"workload {replica.workload}: {data.name} describes a server that computes prompts alone "
                         "(SGLang), and vLLM does not; compose it with --server vllm and plan again, or use --to shell "
                         "or kubernetes")
    yield f"--served-model-name={model}"
    yield f"--tensor-parallel-size={group_of(piece.profile) or 1}"
    yield f"--max-num-seqs={replica.batch}"
    yield f"--max-num-batched-tokens={data.engine.tokens_per_iteration}"
    yield f"--block-size={data.engine.block_tokens}"
    yield f"--gpu-memory-utilization={MEMORY_PART:g}"
    yield f"--max-model-len={tokens.most}"
    yield "--enable-prefix-caching" if tokens.shared_prefix else "--no-enable-prefix-caching"
    yield "--async-scheduling" if data.engine.scheduled_ahead else "--no-async-scheduling"
    if data.models[model].precision in ON_LOADING:
        yield f"--quantization={data.models[model].precision}"
    if data.models[model].kv_precision not in PLAIN:
        yield f"--kv-cache-dtype={data.models[model].kv_precision}"
    if tokens.pool:
        yield f"--kv-transfer-config={TRANSFER}"


def vllm(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``NODE/SERVER/serve.sh`` for every replica of a language model, and nginx's configuration."""
    notes = left_out(instance, "vllm")
    files: dict[str, str] = {}
    addresses: dict[str, list[tuple[str, float]]] = {}
    for node in nodes(plan, gpus_per_node):
        places = [(index, position, gpu.gpu, piece, replica) for index, gpu in node.gpus
                  for position, piece in enumerate(gpu.slices) for replica in piece.replicas]
        for number, (index, position, gpu, piece, replica) in enumerate(places):
            workload = instance.workload[replica.workload]
            if workload.tokens is None:
                continue
            files[f"{node.name}/{slice_name(index, position)}/serve.sh"] = _script(
                instance, gpu, index, position, piece, replica, FIRST_PORT + number)
            if workload.tokens.pool is None:
                addresses.setdefault(workload.name, []).append((f"{node.name}:{FIRST_PORT + number}", replica.rate_rps))
    if addresses:
        files[routing.FILE] = routing.configuration(instance, addresses)
        notes.append(routing.NGINX_NOTE)
    if any(one.tokens and one.tokens.pool for one in language_models(instance)):
        notes.append(POOLS)
    return Exported(files, ("`bash serve.sh DEVICE` starts a server; DEVICE is a UUID of `nvidia-smi -L`, or several "
                            "with commas between for a group of GPUs.", *memory_notes(plan, instance), *notes))


def _script(instance: Instance, gpu: str, index: int, position: int, piece: Slice, replica: Replica, port: int) -> str:
    gpus = group_of(piece.profile)
    devices = f"the UUIDs of {gpus} GPUs, with commas between" if gpus and gpus > 1 else (
        "the UUID of the device: GPU-..." if gpus else "the UUID of the device: MIG-...")
    return SCRIPT.format(
        workload=replica.workload, rate=replica.rate_rps, profile=piece.profile, position=position, index=index,
        devices=devices, model=shlex.quote(instance.model_of(replica)), port=port,
        arguments=" \\\n  ".join(shlex.quote(one) for one in vllm_arguments(instance, gpu, piece, replica)),
    )


def llm_d(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """Files for llm-d: ``RELEASE.yaml`` for every Helm release, ``install.sh``, and what prepares the nodes; and notes
    for the user.
    """
    notes, name = left_out(instance, "llm-d"), prefix(plan)
    machines, found = servers(plan, instance, gpus_per_node)
    labels = slugs(one.application for one in found)
    files, lines = {}, []
    for one in found:
        release = f"{name}-{one.name}"
        files[f"{release}.yaml"] = (f"# {one.replicas} x {one.rate_rps / one.replicas:.6g} requests/s\n"
                                    + yaml_text(_values(one, labels[one.application])))
        lines.append(f"helm upgrade --install {release} llm-d-modelservice/llm-d-modelservice --values "
                     f"{shlex.quote(release + '.yaml')}")
    files["install.sh"] = INSTALL.format(lines="\n".join(lines))
    return Exported(files | node_files(machines, name),
                    (*operator_notes(machines, name), LABELLING, *LLM_D_NOTES, *memory_notes(plan, instance), *notes))


def _values(one: Servers, label: str) -> dict[str, Any]:
    """The chart's values for one release, which has pods of one role only."""
    role = one.pool or "decode"
    return {
        "modelArtifacts": {"name": one.model, "uri": f"hf://{one.model}", "size": "500Gi",
                           "labels": {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": label}},
        "accelerator": {"type": "nvidia", "resources": {"nvidia": one.resource}},
        "routing": {"servicePort": PORT, "proxy": {"enabled": one.pool == "decode", "targetPort": BEHIND_PROXY}},
        role: {
            "create": True,
            "replicas": one.replicas,
            "nodeSelector": {NODE_LABEL: one.node.name},
            "parallelism": {"tensor": one.devices, "data": 1},
            "containers": [_container(one)],
        },
    } | {other: {"create": False} for other in ROLES if other != role}


def _container(one: Servers) -> dict[str, Any]:
    """The server's container; the chart adds model, port, tensor parallelism and devices."""
    added = ("--served-model-name", "--tensor-parallel-size")
    port = BEHIND_PROXY if one.pool == "decode" else PORT
    return {
        "name": "vllm",
        "image": VLLM_IMAGE,
        "modelCommand": "vllmServe",
        "args": [argument for argument in one.arguments if not argument.startswith(added)],
        "ports": [{"name": "metrics", "containerPort": port, "protocol": "TCP"}],
        "mountModelVolume": True,
    }


def dynamo(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``graphs.yaml``, its kustomization, and what prepares the nodes."""
    notes, name = left_out(instance, "dynamo"), prefix(plan)
    machines, found = servers(plan, instance, gpus_per_node)
    graphs: dict[str, list[Servers]] = {}
    for one in found:
        graphs.setdefault(one.application, []).append(one)
    names = slugs(graphs)
    files = {GRAPHS: yaml_text(*(_graph(f"{name}-{names[key]}", several) for key, several in graphs.items())),
             "kustomization.yaml": kustomization([GRAPHS])}
    return Exported(files | node_files(machines, name),
                    (*operator_notes(machines, name), LABELLING, *DYNAMO_NOTES, *memory_notes(plan, instance), *notes))


def _graph(name: str, several: list[Servers]) -> dict[str, Any]:
    front = {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": DYNAMO_IMAGE}}}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {
            "backendFramework": "vllm",
            "services": {"Frontend": front} | {f"Worker{at}": _worker(one) for at, one in enumerate(several)},
        },
    }


def _worker(one: Servers) -> dict[str, Any]:
    """The workers of a group; those of prefill say so."""
    limits = {"gpu": str(one.devices)} | ({} if one.resource == WHOLE_GPUS else {"gpuType": one.resource})
    return {
        "componentType": "worker",
        "subComponentType": one.pool or "decode",
        "replicas": one.replicas,
        "annotations": {"provision/rate-rps": f"{one.rate_rps:.6g}"},
        "resources": {"limits": limits},
        "extraPodSpec": {
            "nodeSelector": {NODE_LABEL: one.node.name},
            "mainContainer": {
                "image": DYNAMO_IMAGE,
                "command": ["python3", "-m", "dynamo.vllm"],
                "args": [f"--model={one.model}", *one.arguments, *([PREFILL] if one.pool == "prefill" else [])],
            },
        },
    }

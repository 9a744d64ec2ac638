"""vLLM's servers of language models: a replica's arguments, groups of equal replicas, notes on names and KV memory.

Source: vLLM's documentation of ``vllm serve`` and of its engine's arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from provision.exporters.common import Node, nodes, prefix, slugs
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

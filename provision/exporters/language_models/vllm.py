"""vLLM: a script per replica that starts its server, and nginx in front of them.

Source: vLLM's documentation of ``vllm serve``.
"""

from __future__ import annotations

import shlex

from provision.exporters.common import Exported, nodes, slice_name
from provision.exporters.language_models.servers import language_models, left_out, memory_notes, vllm_arguments
from provision.exporters.routing import nginx
from provision.models.hardware.gpu import group_of
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance

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


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
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
        files[nginx.FILE] = nginx.configuration(instance, addresses)
        notes.append(nginx.NOTE)
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

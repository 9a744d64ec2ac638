"""Export to Triton Inference Server: a model repository with its ``config.pbtxt``, and a start script, per replica.

A server sees one MIG device, so every replica has its own server. The processes of the replica are instances of its
model. Source: triton-inference-server/common, protobuf/model_config.proto.
"""

from collections.abc import Iterator

from provision.exporters import routing
from provision.exporters.common import Exported, Node, nodes, slice_name, slugs
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import batch_delay_ms, predict_slice
from provision.verification.deployment import percentage

FIRST_PORT = 8000
PORTS = ("http", "grpc", "metrics")

CONFIG = """\
# {workload!a}: model {model!a}, {rate:.6g} requests/s, SLO {slo:g} ms
name: "{name}"
max_batch_size: {batch}
dynamic_batching {{
  preferred_batch_size: [ {batch} ]
  max_queue_delay_microseconds: {delay_us}
}}
instance_group [
  {{
    count: {processes}
    kind: KIND_GPU
    gpus: [ 0 ]
  }}
]
"""

SCRIPT = """\
#!/usr/bin/env bash
# Serves {name} on {profile}, slice {position} of GPU {index} of the plan.
# usage: serve.sh DEVICE{pipe_usage}
set -euo pipefail
export CUDA_VISIBLE_DEVICES="${{1:?give the UUID of the device: {device}}}"
{mps}exec tritonserver --model-repository="$(dirname "$0")/models" {ports}
"""

MPS = """\
export CUDA_MPS_PIPE_DIRECTORY="${{2:?give the pipe directory of the MPS daemon of the device}}"
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}
"""


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``NODE/SERVER/serve.sh`` and ``NODE/SERVER/models/WORKLOAD/config.pbtxt`` for every replica."""
    for workload in instance.workloads:
        if workload.tokens:
            raise InputError(f"workload {workload.name}: triton's dynamic batching serves no language models; use "
                             "another --to, and vLLM with max_num_seqs of the replica's batch")
    names, files = slugs(workload.name for workload in instance.workloads), {}
    servers: dict[str, list[tuple[str, float]]] = {}
    for node in nodes(plan, gpus_per_node):
        for number, (index, position, gpu, order) in enumerate(_servers(node)):
            piece = gpu.slices[position]
            replica = piece.replicas[order]
            _check(index, position, replica)
            server = f"{node.name}/{slice_name(index, position)}-{order}"
            name = names[replica.workload]
            latency_ms = known(predict_slice(instance, gpu.gpu, piece)[order]).latency_ms
            workload = instance.workload[replica.workload]
            delay_ms = batch_delay_ms(instance.policy, workload, piece, replica, latency_ms)
            files[f"{server}/models/{name}/config.pbtxt"] = _config(instance, replica, name, delay_ms)
            files[f"{server}/serve.sh"] = _script(index, position, piece, replica, name, number)
            address = f"{node.name}:{FIRST_PORT + len(PORTS) * number}"
            servers.setdefault(replica.workload, []).append((address, replica.rate_rps))
    files[routing.FILE] = routing.configuration(instance, servers)
    return Exported(files, (*NOTES, routing.NGINX_NOTE))


NOTES = (
    "Put the versions of each model (`1/model.onnx` or the like) beside its `config.pbtxt`; inputs, outputs and "
    "platform are left to Triton's automatic completion.",
    "`bash serve.sh DEVICE` starts a server; DEVICE is a UUID of `nvidia-smi -L`. A replica that shares its slice, or "
    "has a part of its SMs, also takes the pipe directory of an MPS daemon; `--to shell` starts these.",
    "`max_queue_delay_microseconds` is what the batch latency leaves of the task's budget: of half of the SLO under "
    "half_slo, of the SLO times safety under queueing, where replicas that take turns let no batch wait to fill. A "
    "full batch never waits for it.",
    "Measured throughput is that of processes under MPS; Triton's instances are threads of one process. Measure again.",
)


def _servers(node: Node) -> Iterator[tuple[int, int, PlannedGpu, int]]:
    """Yield for every replica the index of the GPU, the position of the slice, the GPU, and the replica's number on the
    slice.
    """
    for index, gpu in node.gpus:
        for position, piece in enumerate(gpu.slices):
            for order in range(len(piece.replicas)):
                yield index, position, gpu, order


def _check(index: int, position: int, replica: Replica) -> None:
    if replica.processes > 1 and replica.sm_share < 1:
        raise InputError(
            f"triton: GPU {index}, slice {position}: the {replica.processes} processes of {replica.workload} have "
            f"{percentage(replica)} % of the SMs each, Triton's instances share one process; use --to shell"
        )


def _config(instance: Instance, replica: Replica, name: str, delay_ms: float) -> str:
    """The model's configuration. A batch may wait for ``delay_ms``, which is written in whole microseconds."""
    workload = instance.workload[replica.workload]
    return CONFIG.format(
        workload=replica.workload, model=instance.model_of(replica), slo=workload.slo_ms, rate=replica.rate_rps,
        name=name, batch=replica.batch, processes=replica.processes,
        delay_us=int(delay_ms * 1000),
    )


def _script(index: int, position: int, piece: Slice, replica: Replica, name: str, number: int) -> str:
    mps = len(piece.replicas) > 1 or replica.sm_share < 1
    first = FIRST_PORT + len(PORTS) * number
    return SCRIPT.format(
        name=name, profile=piece.profile, position=position, index=index,
        pipe_usage=" MPS_PIPE_DIRECTORY" if mps else "",
        device="GPU-..." if piece.profile == WHOLE else "MIG-...",
        mps=MPS.format(percentage=percentage(replica)) if mps else "",
        ports=" ".join(f"--{kind}-port={first + step}" for step, kind in enumerate(PORTS)),
    )

"""Exports to mig-parted, and the files that prepare the nodes of a cluster.

For mig-parted there is a YAML file with one configuration per machine. The YAML has only the number of instances per
profile. mig-parted creates these in the first order that the driver accepts. So the placements are those of the plan
only if the profiles fit the GPU in a single way. Checkpoints, which ``restore`` reads, contain placements. Source:
NVIDIA/mig-parted, api/spec/v1 and pkg/mig/state.

Nodes of a cluster are prepared by the GPU operator's MIG configuration, labels of nodes, and notes on what to do.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from provision.exporters.common import Exported, Node, nodes, yaml_text
from provision.exporters.pods import NODE_LABEL
from provision.models.base.errors import InputError, optional
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import GpuType, MigProfile, gpu_type
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``config.yaml``, and ``checkpoint-NODE.json`` for machines whose placements the YAML does not determine."""
    machines = [node for node in nodes(plan, gpus_per_node) if node.can_mig]
    if not any(node.mig for node in machines):
        raise InputError("mig-parted: no GPU of the plan is partitioned; use --to shell, which starts MPS")
    undetermined = [node for node in machines if node.mig and _open(node)]
    files = {"config.yaml": yaml_text(configuration(machines))}
    files |= {f"checkpoint-{node.name}.json": json.dumps(checkpoint(node), indent=1) + "\n" for node in undetermined}
    return Exported(files, (*_use(machines), *map(_placements, undetermined)))


def configuration(machines: Sequence[Node]) -> dict[str, Any]:
    """The content of the YAML: a configuration per machine. GPUs with the same counts share an entry."""
    return {"version": "v1", "mig-configs": {node.name: _entries(node) for node in machines}}


def _entries(node: Node) -> list[dict[str, Any]]:
    alike: dict[tuple[str, ...], list[int]] = {}
    for device, (_, gpu) in enumerate(node.gpus):
        alike.setdefault(_profiles(gpu), []).append(device)
    return [
        {"devices": devices, "mig-enabled": node.mig} | ({"mig-devices": dict(Counter(names))} if node.mig else {})
        for names, devices in alike.items()
    ]


def _profiles(gpu: PlannedGpu) -> tuple[str, ...]:
    return tuple(sorted(piece.profile for piece in gpu.slices))


def _open(node: Node) -> list[int]:
    """The devices of a machine on which the profiles fit in several ways."""
    return [device for device, (_, gpu) in enumerate(node.gpus) if _ways(gpu.gpu, _profiles(gpu)) > 1]


@cache
def _ways(gpu: str, names: tuple[str, ...]) -> int:
    """The number of ways in which these profiles fit a GPU."""
    counts = Counter(names)
    shape = geometry(gpu_type(gpu), tuple(counts))
    return sum(shape.counts(state) == tuple(counts.values()) for state in shape.states)


def checkpoint(node: Node) -> dict[str, Any]:
    """A machine's MIG state with its placements. A plan has no UUIDs, so the user fills them in."""
    devices = [
        {"UUID": f"UUID-OF-GPU-{device}", "MigMode": 1, "GpuInstances": _gpu_instances(node.type, gpu)}
        for device, (_, gpu) in enumerate(node.gpus)
    ]
    return {"Version": "v1", "MigState": {"Devices": devices}}


def _gpu_instances(kind: GpuType, gpu: PlannedGpu) -> list[dict[str, Any]]:
    """The GPU instances in the order in which mig-parted lists them: by profile, and then by start."""
    pieces = sorted((kind.profiles[piece.profile].nvml_profile, piece.start, piece.profile) for piece in gpu.slices)
    return [
        {
            "ProfileID": number,
            "Placement": {"Start": start, "Size": kind.profiles[name].memory},
            "ComputeInstances": [{"ProfileID": _compute_instance(kind, kind.profiles[name]), "EngProfileID": 0}],
        }
        for number, start, name in pieces
    ]


def _compute_instance(kind: GpuType, profile: MigProfile) -> int:
    """NVML's number of the compute instance that spans a GPU instance."""
    plain = {one.compute: one.sms for one in kind.profiles.values() if one.variant == "plain"}
    if profile.sms != plain[profile.compute]:
        raise InputError(
            f"mig-parted: {profile.name} on {kind.name} has {profile.sms} SMs where a plain profile has "
            f"{plain[profile.compute]}, and which compute instance spans it is not documented; use --to shell"
        )
    with optional():
        import pynvml  # few exports need it
    return getattr(pynvml, f"NVML_COMPUTE_INSTANCE_PROFILE_{profile.compute}_SLICE")


def _use(machines: Sequence[Node]) -> Iterator[str]:
    for node in machines:
        yield f"`{node.name}` is for a machine with {len(node.gpus)} x {node.type.product}."
    first = machines[0].name
    yield (
        f"`nvidia-mig-parted apply -f config.yaml -c {first}` first destroys the MIG instances that its GPUs have, and "
        "puts nothing back when it fails."
    )
    yield "`nvidia-mig-parted assert` holds only on a machine that has no other GPUs than its configuration."
    yield "Processes, MPS percentages and batch sizes are not part of these files."


def _placements(node: Node) -> str:
    open_devices = ", ".join(map(str, _open(node)))
    return (
        f"`config.yaml` cannot carry the placements of {node.name} on GPUs {open_devices}: it counts profiles, and "
        f"these fit in several ways. `nvidia-mig-parted restore -f checkpoint-{node.name}.json` places them exactly, "
        "once every UUID-OF-GPU-N in it is the UUID that `nvidia-smi -L` shows for GPU N."
    )


LABELLING = "`bash label-nodes.sh NODE...` tells which Kubernetes node is which machine; drain the nodes before it."


def node_files(machines: Sequence[Node], prefix: str) -> dict[str, str]:
    """The MIG configurations of the machines and the script that labels them."""
    files = {"label-nodes.sh": label_script(machines)}
    if any(node.can_mig for node in machines):
        files["mig-config.yaml"] = yaml_text(_config_map(machines, prefix))
    return files


def _config_map(machines: Sequence[Node], prefix: str) -> dict[str, Any]:
    """The ConfigMap that the GPU operator's mig-manager reads."""
    content = yaml_text(configuration([node for node in machines if node.can_mig]))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _config_name(prefix), "namespace": "gpu-operator"},
        "data": {"config.yaml": content},
    }


def _config_name(prefix: str) -> str:
    return f"{prefix}-mig-config"


def node_labels(node: Node, partitioned: bool) -> dict[str, str]:
    """The labels of the cluster's node that is to be a machine of the plan."""
    mig = {"nvidia.com/mig.config": node.name} if partitioned and node.can_mig else {}
    return {NODE_LABEL: node.name} | mig


LABELS = """\
#!/usr/bin/env bash
# Labels Kubernetes nodes as the machines of the plan{starts}; cordon and drain them first.
# usage: label-nodes.sh {usage}
set -euo pipefail
[[ $# -eq {count} ]] || {{ echo "error: give {count} node names, in the order {usage} (got $#)" >&2; exit 1; }}
{lines}
"""


def label_script(machines: Sequence[Node], partitioned: bool = True) -> str:
    """The script that labels nodes. If ``partitioned``, the labels make the GPU operator partition the nodes."""
    lines = []
    for number, node in enumerate(machines, start=1):
        labels = [f"{name}={value}" for name, value in node_labels(node, partitioned).items()]
        lines += [
            f'echo "${{{number}}} becomes {node.name}: {node.devices}"',
            f'kubectl label node "${{{number}}}" --overwrite {shlex.join(labels)}',
        ]
    usage = " ".join(node.name for node in machines)
    starts = ", which starts their partitioning" if partitioned else ""
    return LABELS.format(usage=usage, count=len(machines), lines="\n".join(lines), starts=starts)


def notes(machines: Sequence[Node], prefix: str) -> Iterator[str]:
    """Yield notes that say, in order, what to do if nodes are partitioned beforehand."""
    yield from operator_notes(machines, prefix)
    yield from pod_notes()


def operator_notes(machines: Sequence[Node], prefix: str) -> Iterator[str]:
    """Yield notes on how to make the GPU operator partition the nodes."""
    if any(node.can_mig for node in machines):
        yield (
            "`kubectl apply -f mig-config.yaml`, and let the GPU operator use it (Helm: "
            f"migManager.config.name={_config_name(prefix)}, mig.strategy=mixed). It counts profiles; the driver "
            "places them. The operator reads one such ConfigMap: put the configurations of several plans into one."
        )
        yield (
            "The node label `nvidia.com/mig.config.state` tells how partitioning went. The operator acts on a changed "
            "value of `nvidia.com/mig.config` only: to try again set another one in between."
        )


def pod_notes() -> Iterator[str]:
    """Yield notes that say, in order, what to do with nodes and pods."""
    yield LABELLING
    yield (
        "Images are named after the models: `kustomize edit set image MODEL=REGISTRY/IMAGE` for each, then "
        "`kubectl apply -k .` starts the Deployments, with a container per server process."
    )
    yield "A label `workload.provision/NAME` marks the pods that serve a workload, for a Service to select."

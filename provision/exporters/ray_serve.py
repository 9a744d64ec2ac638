"""Export to Ray Serve: an application per workload and a deployment per replica, on Ray nodes that are one slice each.

Ray does not know placements or MPS. So every slice is a Ray node of its own with a resource named after it, and
replicas run where the plan places them. Source: Ray's documentation of Serve config files and of ``ray start``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import floor
from typing import Any

from provision.exporters.common import Exported, Node, nodes, prefix, slice_name, slugs, yaml_text
from provision.models.hardware.gpu import group_of
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps, percentage

PARTS = 10_000
"""Ray counts fractions of a GPU in ten-thousandths."""
SCRIPT = """\
#!/usr/bin/env bash
# Starts a Ray node per slice of machine {name}; `--to shell` makes the slices and the MPS daemons.
# usage: start-ray.sh HEAD:PORT DEVICE... (UUIDs of `nvidia-smi -L`, in the order {order};
# for a group of GPUs all of theirs, with commas between them)
# STATE: the folder with the daemons' pipe directories, SLICE/pipe
set -euo pipefail
[[ $# -eq {count} ]] || {{ echo "error: give HEAD:PORT and {devices} devices (got $# words)" >&2; exit 1; }}
head=$1; shift
{starts}
"""
NOTES = (
    "`bash start-ray.sh HEAD:PORT DEVICE...` on every machine, then `serve deploy serve.yaml`.",
    "`serving:build` of every application is yours: a builder that takes `args` and makes a deployment for each of its "
    "`replicas`, under the name given there, and one before them that deals requests by `rate_rps`.",
)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``serve.yaml``, and ``MACHINE/start-ray.sh`` for every machine."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    slugged = slugs(workload.name for workload in instance.workloads)
    replicas: dict[str, list[dict[str, Any]]] = {}
    arguments: dict[str, list[dict[str, Any]]] = {}
    for place, piece in (one for node in machines for one in _places(node, name)):
        for replica in piece.replicas:
            deployment = _deployment(f"{place}-{slugged[replica.workload]}", place, piece, replica)
            told = {"deployment": deployment["name"], "model": instance.model_of(replica), "batch": replica.batch}
            replicas.setdefault(replica.workload, []).append(deployment)
            arguments.setdefault(replica.workload, []).append(told | {"rate_rps": replica.rate_rps})
    applications = [
        {
            "name": f"{name}-{slugged[workload]}",
            "route_prefix": f"/{slugged[workload]}",
            "import_path": "serving:build",
            "args": {"workload": workload, "replicas": arguments[workload]},
            "deployments": deployments,
        }
        for workload, deployments in replicas.items()
    ]
    files = {"serve.yaml": yaml_text({"applications": applications})}
    return Exported(files | {f"{node.name}/start-ray.sh": _script(node, name) for node in machines}, NOTES)


def _places(node: Node, prefix: str) -> Iterator[tuple[str, Slice]]:
    """Yield the name and the slice, for every slice of a machine that has replicas."""
    for index, gpu in node.gpus:
        for position, piece in enumerate(gpu.slices):
            if piece.replicas:
                yield f"{prefix}-{slice_name(index, position)}", piece


def _deployment(name: str, place: str, piece: Slice, replica: Replica) -> dict[str, Any]:
    """A deployment with one actor per server process, all on the Ray node of their slice."""
    share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage(replica)} if needs_mps(piece) else {}
    return {
        "name": name,
        "num_replicas": replica.processes,
        "max_ongoing_requests": 2 * replica.batch,
        "ray_actor_options": {
            "num_gpus": _part(piece),
            "resources": {place: 1},
            "runtime_env": {"env_vars": {"PROVISION_BATCH": str(replica.batch)} | share},
        },
    }


def _processes(piece: Slice) -> int:
    return sum(replica.processes for replica in piece.replicas)


def _part(piece: Slice) -> float:
    """What each process requests: a number of GPUs, or a fraction of a slice. Ray only counts it; MPS enforces SM
    shares.
    """
    return (group_of(piece.profile) or 1) * floor(PARTS / _processes(piece)) / PARTS


def _script(node: Node, prefix: str) -> str:
    places = dict(_places(node, prefix))
    starts = []
    for number, (place, piece) in enumerate(places.items(), start=1):
        resources = json.dumps({place: _processes(piece)})
        short = place.removeprefix(f"{prefix}-")
        mps = f'CUDA_MPS_PIPE_DIRECTORY="${{STATE:?}}/{short}/pipe" ' if needs_mps(piece) else ""
        gpus = group_of(piece.profile) or 1
        device = f'CUDA_VISIBLE_DEVICES="${{{number}}}"'
        starts.append(f"{device} {mps}ray start --address \"$head\" --num-gpus {gpus} --resources '{resources}'")
    order = " ".join(place.removeprefix(f"{prefix}-") for place in places)
    return SCRIPT.format(
        name=node.name, order=order, count=len(places) + 1, devices=len(places), starts="\n".join(starts)
    )

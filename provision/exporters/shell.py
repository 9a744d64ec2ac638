"""Export as a shell script per machine, which partitions its GPUs with nvidia-smi and starts the MPS daemons.

Every placement is explicit (``nvidia-smi mig -cgi PROFILE:START``). The script changes nothing unless all given GPUs
are idle and unpartitioned. Source: NVIDIA MIG user guide, nvidia-smi(1), nvidia-cuda-mps-control(1).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from provision.exporters.common import Exported, nodes, slice_name
from provision.exporters.routing import nginx
from provision.exporters.shell_functions import FUNCTIONS
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE
from provision.verification.deployment import needs_mps, percentage

if TYPE_CHECKING:
    from provision.exporters.common import Node
    from provision.models.hardware.gpu import GpuType
    from provision.models.plans.plan import Plan, Replica, Slice
    from provision.models.problem.instance import Instance

FIRST_PORT = 8000
HEAD = """\
#!/usr/bin/env bash
# Sets up {count} x {product}; the arguments are their indices or UUIDs.
"""


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``NODE.sh`` for every machine, and the configuration of nginx."""
    machines = nodes(plan, gpus_per_node)
    if grouped := [node.name for node in machines if node.type.gpus > 1]:
        raise InputError(f"shell: {grouped[0]} serves groups of GPUs; use --to kubernetes")
    files = {f"{node.name}.sh": _script(instance, node) for node in machines}
    files[nginx.FILE] = nginx.configuration(instance, _servers(machines))
    return Exported(files, (*_use(machines), *NOTES, nginx.NOTE))


NOTES = (
    "A script refuses GPUs that have MIG instances or running processes, before it changes anything.",
    "For every replica it leaves `/run/provision/SLICE/N.env` (PROVISION_STATE names another folder): the environment "
    "for each of its server processes, and what they serve. `set -a; . FILE; set +a`, then start them: the first "
    "listens at PROVISION_PORT, the next at the port after it, and so on.",
    "A script that fails stops at once and undoes nothing; it says where it stopped. `nvidia-smi mig -dci`, `-dgi` and "
    "`echo quit | nvidia-cuda-mps-control` undo its steps.",
)


def _use(machines: Sequence[Node]) -> Iterator[str]:
    for node in machines:
        gpus = " ".join(f"GPU{device}" for device in range(len(node.gpus)))
        yield f"`bash {node.name}.sh {gpus}`, as root: indices or UUIDs of {len(node.gpus)} x {node.type.product}."


def _script(instance: Instance, node: Node) -> str:
    count = len(node.gpus)
    lines = [HEAD.format(count=count, product=node.type.product) + FUNCTIONS, f'take_gpus {count} "$@"']
    lines += [f"check_free {_gpu(device)}" for device in range(count)]
    ports = (port for _, port in _ports(node))
    for device, (index, gpu) in enumerate(node.gpus):
        lines += ["", f"# GPU {index} of the plan", *_mode(node, device)]
        for position, piece in enumerate(gpu.slices):
            lines += _slice(instance, node.type, device, slice_name(index, position), piece, ports)
    return "\n".join([*lines, "say done", ""])


def _ports(node: Node) -> Iterator[tuple[Replica, int]]:
    """Yield every replica of a machine with its first port. It has as many consecutive ports as processes."""
    port = FIRST_PORT
    for _, gpu in node.gpus:
        for replica in (one for piece in gpu.slices for one in piece.replicas):
            yield replica, port
            port += replica.processes


def _servers(machines: Sequence[Node]) -> nginx.Servers:
    """The addresses of the processes of every workload, each with its rate."""
    found: dict[str, list[tuple[str, float]]] = {}
    for node in machines:
        for replica, first in _ports(node):
            each_rps = replica.rate_rps / replica.processes
            ports = range(first, first + replica.processes)
            found.setdefault(replica.workload, []).extend((f"{node.name}:{port}", each_rps) for port in ports)
    return found


def _gpu(device: int) -> str:
    return f'"${{gpus[{device}]}}"'


def _mode(node: Node, device: int) -> list[str]:
    if not node.type.mig:
        return []
    return [f"switch_mig {_gpu(device)} {'Enabled 1' if node.mig else 'Disabled 0'}"]


def _slice(
    instance: Instance, kind: GpuType, device: int, name: str, piece: Slice, ports: Iterator[int]
) -> Iterator[str]:
    """Yield shell lines that make a slice, start its MPS daemon and describe its replicas, which take the next
    ``ports``.
    """
    if piece.profile == WHOLE:
        yield f"take_whole {_gpu(device)}{' exclusive' if needs_mps(piece) else ''}"
    else:
        profile = kind.profiles[piece.profile]
        yield f"create_slice {_gpu(device)} {profile.profile_id} {piece.start} {profile.name}"
    yield f"make_folder {name}"
    if needs_mps(piece):
        largest = max(piece.replicas, key=lambda replica: replica.sm_share)
        yield f"start_mps {name} {percentage(largest)}"
    for order, replica in enumerate(piece.replicas):
        described = (replica.workload, instance.model_of(replica), replica.batch, replica.processes,
                     f"{replica.rate_rps:.6g}", next(ports))
        limit = percentage(replica) if needs_mps(piece) else ""
        yield shlex.join(["describe", name, str(order), limit, *map(str, described)])

"""ParvaGPU's deployment map: the CSV that ``provision import parvagpu-deployment`` reads.

It has a row per segment: a MIG slice of an A100-80GB with the processes of one workload.
"""

from collections.abc import Mapping

from provision.exporters.common import Exported, nodes
from provision.instances.files.csv_cells import csv_text
from provision.instances.importers.parvagpu import DEPLOYMENT_COLUMNS, GPU, profile_names
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The content of ``deployment.csv``. Machines and their GPUs are numbered from 0."""
    sizes = {name: size for size, name in profile_names().items()}
    rows = []
    for machine, node in enumerate(nodes(plan, gpus_per_node)):
        for device, (index, gpu) in enumerate(node.gpus):
            _check_gpu(index, gpu)
            for position, piece in enumerate(gpu.slices):
                replica = _segment(index, position, piece, sizes)
                size = sizes[piece.profile]
                row = (machine, device, replica.workload, piece.start, size, replica.batch, replica.processes)
                rows.append(row)
    note = "The map has no rates: reading it back splits every workload's rate in proportion to throughput."
    return Exported({"deployment.csv": csv_text(DEPLOYMENT_COLUMNS, rows)}, (note,))


def _check_gpu(index: int, gpu: PlannedGpu) -> None:
    if gpu.gpu != GPU or not gpu.mig:
        shown = f"{gpu.gpu} with MIG {'on' if gpu.mig else 'off'}"
        raise InputError(f"parvagpu: GPU {index} is a {shown}, a deployment map knows partitioned {GPU} only")
    if not gpu.slices:
        raise InputError(f"parvagpu: GPU {index} is empty, a deployment map names GPUs by their segments; remove it")


def _segment(index: int, position: int, piece: Slice, sizes: Mapping[str, int]) -> Replica:
    """The only replica of a slice."""
    where = f"parvagpu: GPU {index}, slice {position}"
    if piece.profile not in sizes:
        raise InputError(f"{where}: a deployment map has no {piece.profile}, it knows {', '.join(sizes)}")
    if len(piece.replicas) != 1:
        raise InputError(f"{where}: has {len(piece.replicas)} workloads, a deployment map knows one per slice")
    if piece.replicas[0].model is not None:
        raise InputError(f"{where}: runs {piece.replicas[0].model}, a deployment map has no variants of a workload")
    if piece.replicas[0].sm_share < 1:
        raise InputError(f"{where}: sm_share {piece.replicas[0].sm_share:g}, a deployment map has no SM percentages")
    return piece.replicas[0]

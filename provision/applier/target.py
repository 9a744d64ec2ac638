"""Turns a plan into layouts of GPUs, and environments and commands of replicas; refuses stale plans."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from provision.applier.layout import COMMAND, RATE, WORKLOAD, Compute, GpuLayout, ReplicaLayout, SliceLayout
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import misfits, needs_mps, percentage, too_many_clients

FIELDS = ("workload", "model", "batch", "processes", "rate_rps", "profile")


class Commands:
    """Makes the command that serves a replica from a template such as ``serve {model} --batch {batch}``.

    Parameters
    ----------
    template
        Words with fields in braces; None if something else starts the servers. No shell reads it.
    models
        The model of each workload, for replicas that do not name a model.
    """

    def __init__(self, template: str | None = None, models: Mapping[str, str] | None = None) -> None:
        self.template, self.models = template, models or {}

    def command(self, replica: Replica, profile: str) -> str | None:
        """The command of a replica as one line of shell words; None if there is no template."""
        if self.template is None:
            return None
        values = replica.model_dump(include=set(FIELDS), exclude_none=True) | {"profile": profile}
        if replica.workload in self.models:
            values.setdefault("model", self.models[replica.workload])
        try:
            words = [word.format(**values) for word in shlex.split(self.template)]
        except KeyError as error:
            if error.args[0] == "model":
                raise InputError(f"--server: {replica.workload}: the instance has its model; add --instance") from None
            raise InputError(f"--server: unknown field {error}; there are {', '.join(FIELDS)}") from None
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise InputError(f"--server: cannot be read: {error}; write braces as {{{{ and }}}}") from None
        if not words:
            raise InputError("--server: is empty; give the command that starts a server")
        return shlex.join(words)


def check_plan(plan: Plan) -> None:
    """Refuse a plan that no GPU can take. Raises InputError if no GPU can take it. The message names the GPU, the slice
    and the remedy.
    """
    plan.refuse_turns("apply")
    for number, gpu in enumerate(plan.gpus):
        kind, where = gpu_type(gpu.gpu), f"plan: gpus[{number}]"
        if kind.gpus > 1:
            raise InputError(f"{where}: {gpu.gpu} is a node, and apply sets up single GPUs; export it to kubernetes")
        for misfit in misfits(gpu):
            at = where if misfit.position is None else f"{where}.slices[{misfit.position}]"
            raise InputError(f"{at}: {misfit.message}; solve again")
        for position, piece in enumerate(gpu.slices):
            if crowd := too_many_clients(kind, piece):
                raise InputError(f"{where}.slices[{position}]: {crowd.message}; use fewer processes")


def refuse_stale(instance: Instance, plan: Plan, force: bool) -> None:
    """Refuse a plan that was made for another instance or another state of it, unless forced; raise InputError."""
    other = plan.made_for_another(instance.name, instance.digest)
    if other and not force:
        raise InputError(f"the plan was made for {other}, not for {instance.name} as it is; plan again, or add --force")


def gpu_layout(gpu: PlannedGpu, uuid: str, commands: Commands) -> GpuLayout:
    """The layout of a planned GPU on the physical GPU with this UUID."""
    kind = gpu_type(gpu.gpu)
    slices = tuple(_slice_layout(kind, piece, commands) for piece in gpu.slices)
    if not gpu.mig and not slices:
        slices = (SliceLayout(profile=WHOLE),)
    return GpuLayout(uuid=uuid, mig=gpu.mig, mig_pending=gpu.mig, slices=slices)


def _slice_layout(kind: GpuType, piece: Slice, commands: Commands) -> SliceLayout:
    mps = needs_mps(piece)
    replicas = tuple(_replica_layout(kind, piece, replica, mps, commands) for replica in piece.replicas)
    if piece.profile == WHOLE:
        return SliceLayout(profile=WHOLE, mps=mps, replicas=replicas, planned=True)
    profile = kind.profiles[piece.profile]
    return SliceLayout(
        profile=piece.profile,
        enumerator=profile.nvml_profile,
        start=piece.start,
        size=profile.memory,
        computes=(Compute(sms=profile.sms),),
        mps=mps,
        replicas=replicas,
        planned=True,
    )


def _replica_layout(kind: GpuType, piece: Slice, replica: Replica, mps: bool, commands: Commands) -> ReplicaLayout:
    environment = {
        WORKLOAD: replica.workload,
        RATE: repr(replica.rate_rps),
        "PROVISION_BATCH": str(replica.batch),
        "PROVISION_PROCESSES": str(replica.processes),
    }
    if replica.model is not None:
        environment["PROVISION_MODEL"] = replica.model
    if mps:
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percentage(replica)
    if mps and len(piece.replicas) == 1:
        # The processes of one replica are equal, so an equal part of the memory is enough for each. For different
        # replicas the parts are not known.
        memory_mib = int(kind.slice_memory_gib(piece.profile) * 1024 / replica.processes)
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_mib}M"
    command = commands.command(replica, piece.profile)
    if command is None:
        return ReplicaLayout(environment=environment)
    return ReplicaLayout(environment=environment | {COMMAND: command}, running=replica.processes)

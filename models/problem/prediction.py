"""Predicts the replicas of a plan from the performance data of its instance, slice by slice.

The verifier uses these functions. Methods search arrays of operating points instead, and tests compare the two.

In workflows, later stages get requests in bursts, which are as large as the largest batch on any path to a workload,
since replicas that get a burst together also answer it together. Workloads with tokens get none, since their engines
answer token by token. Where performance data do not state the memory of models on shared GPUs, notes tell the user.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from provision.models.base.errors import InputError
from provision.models.base.objects import Identity
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.bands import Spot
from provision.models.performance.catalogue import PerformanceFile, ServiceBands, band_of
from provision.models.performance.operating_points import Member, Prediction
from provision.models.performance.shared_gpus import SharedMemoryData
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workflow import Workflow
from provision.models.problem.workload import Stage, Workload


def predict_slice(instance: Instance, gpu: str, piece: Slice) -> list[Prediction | None]:
    """Predictions for all replicas of a slice.

    Parameters
    ----------
    instance
        The instance, with its workloads and performance data.
    gpu
        The name of the GPU type.
    piece
        The slice with its replicas.

    Returns
    -------
    list of Prediction
        The predictions in the order of the replicas; None if a workload is unknown or no data describes the case.
    """
    members = slice_members(instance, piece)
    if members is None:
        return [None] * len(piece.replicas)
    models = [member.model for member in members]
    data = performance_beside(instance, gpu, piece.profile, models)
    turns = any(member.turn is not None for member in members)
    if data is None or (turns and not data.turns):
        return [None] * len(members)
    return data.predict(piece.profile, members)


def performance_beside(instance: Instance, gpu: str, profile: str, models: Sequence[str]) -> PerformanceFile | None:
    """The performance data for replicas of these models on one slice, alone or together; None if there is none."""
    return instance.performance_of(gpu, models[0], profile) if len(models) == 1 else instance.sharing_of(gpu, models)


def throughput_rps(instance: Instance, plan: Plan) -> float:
    """The requests/s that all replicas of a plan together can serve; replicas that no data describes count as 0.

    Under a rule for random arrivals, and for language models, the rate of a replica is the highest rate at which it
    keeps its SLO. Replicas that share a slice are taken as busy at the same time. The last results are cached.
    """
    return _throughput_rps(Identity(instance), Identity(plan))


@lru_cache(maxsize=4)
def _throughput_rps(of: Identity[Instance], planned: Identity[Plan]) -> float:
    plan = planned.one
    instance = as_deployed(of.one, plan)
    return math.fsum(
        counted_rps(instance, gpu.gpu, piece, replica, found)
        for gpu in plan.gpus for piece in gpu.slices if piece.replicas
        for replica, found in zip(piece.replicas, predict_slice(instance, gpu.gpu, piece), strict=True)
        if found is not None
    )


def counted_rps(instance: Instance, gpu: str, piece: Slice, replica: Replica, found: Prediction) -> float:
    """The amount that a replica adds to the throughput of a plan, in requests/s."""
    if instance.workload[replica.workload].tokens:
        return tokens_rps(instance, gpu, piece)
    return carried_rps(instance, replica, found)


def carried_rps(instance: Instance, replica: Replica, found: Prediction) -> float:
    """The highest rate, in requests/s, at which a replica with this Prediction keeps the latency rule."""
    workload = instance.workload[replica.workload]
    budget_ms = instance.budget_ms(workload) * (1 + TOLERANCE)
    return instance.policy.rule_for(workload).carried_rps(replica.batch, replica.processes, found, budget_ms)


def tokens_rps(instance: Instance, gpu: str, piece: Slice) -> float:
    """The highest rate at which a replica of a language model, alone on its slice, keeps its limits, in requests/s."""
    [replica] = piece.replicas
    workload, model = instance.workload[replica.workload], instance.model_of(replica)
    data = instance.performance_of(gpu, model)
    assert isinstance(data, TokenModels)
    return engine_rps(instance, data, workload, model, piece.profile, replica.batch)


def engine_rps(instance: Instance, data: TokenModels, workload: Workload, model: str, profile: str,
               sequences: int) -> float:
    """The highest rate at which an engine with ``sequences`` at a time keeps a workload's limits, in requests/s."""
    from provision.models.performance.tokens.operating import costs_of, highest_rate_rps, part_of

    tokens, policy = workload.tokens, instance.policy
    assert tokens is not None
    rate_rps: float = highest_rate_rps(
        tokens.input.counts, tokens.output.counts, policy.limits_of(workload),
        data.engine_of(model, profile, sequences), costs_of(data.models[model].slices[profile]),
        policy.traffic_of(workload).arrivals, part=part_of(tokens),
    )  # fmt: skip
    return rate_rps


def task_p99_ms(policy: Policy, workload: Workload, replica: Replica, found: Prediction) -> float | None:
    """The percentile of the latency of requests at a replica with this Prediction, in ms; None if the latency rule does
    not limit it.
    """
    delay_ms = policy.queue_delay_ms(workload.slo_ms, found.latency_ms)
    return policy.rule_for(workload).tail_ms(replica.batch, replica.processes, found, replica.rate_rps, delay_ms)


def batch_delay_ms(policy: Policy, workload: Workload, piece: Slice, replica: Replica, latency_ms: float) -> float:
    """The longest time, in ms, that a replica of a workload on a slice should wait for its batch to fill.

    It is 0 for replicas that run in turns under a rule for random arrivals, since other replicas are served in between.
    """
    if policy.rule.random_arrivals:
        return 0.0 if replica.turn is not None else policy.queue_delay_ms(workload.slo_ms, latency_ms)
    if policy.share_slices and len(piece.replicas) > 1:
        return policy.fill_ms(workload.slo_ms)
    return policy.queue_delay_ms(workload.slo_ms, latency_ms)


def slice_members(instance: Instance, piece: Slice) -> tuple[Member, ...] | None:
    """The replicas of a slice as the input of performance models; None if a workload is unknown.

    A replica that is alone on its slice is predicted with all its processes busy. Its rate and waiting time do not
    matter and are left out, so that replicas with the same operating point are equal Members. If throughput is the
    objective, replicas that share a slice have an infinite rate, that is, all are busy. With their routed rates, each
    replica could seem to carry a rate that it carries only while the others idle.
    """
    if any(replica.workload not in instance.workload for replica in piece.replicas):
        return None
    shared = len(piece.replicas) > 1
    return tuple(
        Member(instance.model_of(one), one.batch, one.processes, one.sm_share,
               (math.inf if instance.objective == THROUGHPUT else one.rate_rps) if shared else 0.0,
               one.turn, instance.policy.fill_ms(instance.workload[one.workload].slo_ms) if shared else math.inf,
               instance.policy.rule.random_arrivals, instance.workload[one.workload].tokens)
        for one in piece.replicas
    )


def bands_at(instance: Instance, gpu: str, piece: Slice, replica: Replica) -> ServiceBands | None:
    """The bands of the predictions for a replica on a slice; None if its performance data state no errors."""
    models = [instance.model_of(one) for one in piece.replicas]
    data = performance_beside(instance, gpu, piece.profile, models)
    if data is None:
        return None
    spot = Spot(piece.profile, replica.batch, replica.sm_share, len(piece.replicas) > 1)
    return band_of(data, instance.model_of(replica), spot)


def refuse_unequal_rates(instance: Instance) -> None:
    """Refuse workflows whose workloads have different rates: every request passes through all of them. Raises
    InputError if there is one. The message names the workflow and the rates.
    """
    for workflow in instance.workflows:
        rates = {instance.workload[name].rate_rps for name in workflow.workloads}
        if len(rates) > 1:
            shown = ", ".join(f"{rate:g}" for rate in sorted(rates))
            raise InputError(f"workflow {workflow.name}: every request passes through all its workloads, but their "
                             f"rates are {shown} requests/s; give all the same")


def with_bursts(instance: Instance) -> list[Workflow]:
    """The workflows in which batches of one workload become bursts for another."""
    if not instance.policy.rule.random_arrivals:
        return []
    return [flow for flow in instance.workflows
            if flow.graph.size() and not any(instance.workload[name].tokens for name in flow.workloads)]


def feeding(instance: Instance) -> list[str]:
    """The names of the workloads whose batches become bursts for other workloads."""
    return [name for flow in with_bursts(instance) for name in flow.order if flow.graph.out_degree(name)]


def bursts(instance: Instance, batches: Mapping[str, int]) -> dict[str, int]:
    """Return how many requests may arrive at once, for every workload that follows others in a workflow.

    Parameters
    ----------
    instance
        The instance with its workflows.
    batches
        By workload that others follow, its largest batch; 1 for workloads that are not named.
    """
    found: dict[str, int] = {}
    for flow in with_bursts(instance):
        for name in flow.order:
            before = list(flow.graph.predecessors(name))
            if before:
                found[name] = max(max(batches.get(one, 1), found.get(one, 1)) for one in before)
    return found


def in_stages(instance: Instance, batches: Mapping[str, int], limited: bool = False) -> Instance:
    """The instance with the bursts that these largest batches cause; if ``limited``, plans may not have larger batches.
    """
    arriving = bursts(instance, batches)
    stages = {name: Stage(burst=arriving.get(name, 1), most_batch=batches.get(name) if limited else None)
              for name in {*arriving, *(batches if limited else ())}}
    changed = {name: stage for name, stage in stages.items() if stage != Stage()}
    if not changed:
        return instance
    return instance.replace(workloads=[one.model_copy(update={"stage": changed.get(one.name, one.stage)})
                                       for one in instance.workloads])


def as_deployed(instance: Instance, plan: Plan) -> Instance:
    """The instance with the bursts that the batches of a plan cause."""
    if not with_bursts(instance):
        return instance
    largest: dict[str, int] = {}
    for *_, one in plan.replicas():
        largest[one.workload] = max(largest.get(one.workload, 1), one.batch)
    before = feeding(instance)
    return in_stages(instance, {name: batch for name, batch in largest.items() if name in before})


def memory_data(instance: Instance) -> Iterator[SharedMemoryData]:
    """Yield the performance data of the fleet's GPU types that describes replicas on shared GPUs."""
    gpus = {entry.gpu for entry in instance.fleet}
    yield from (data for data in instance.performance if isinstance(data, SharedMemoryData) and data.gpu in gpus)


def states_memory(instance: Instance) -> bool:
    """Whether performance data states the memory of some model; a search that ignores memory may then exceed it."""
    return any(data.states_memory for data in memory_data(instance))


def memory_notes(instance: Instance) -> Iterator[str]:
    """Yield lines on models whose memory is unknown or only estimated."""
    for data in memory_data(instance):
        models = [model for workload in instance.workloads for model in workload.models if model in data.stated]
        stated = {model: data.stated[model] for model in dict.fromkeys(models)}
        unknown = [model for model, one in stated.items() if not one.memory_mib]
        guessed = [model for model, one in stated.items() if one.memory_estimated]
        if unknown:
            yield (f"memory of {', '.join(unknown)} on {data.gpu} is not known and not checked; state memory_mib in "
                   f"{data.name}")
        if guessed:
            yield f"memory of {', '.join(guessed)} on {data.gpu} is estimated, not measured"

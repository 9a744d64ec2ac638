"""Changes during a replay: a GPU is lost, or replicas switch to standby processes.

*Loss of a GPU.* After the loss, requests go to the remaining replicas in proportion to the rates that these can carry.
With ``even_replicas`` they go in equal parts, and for language models in proportion to the planned rates. If the plan
passes the verifier's check of ``survive``, no replica is then overloaded. Requests that waited or ran on the lost GPU
are dropped. They are counted, but left out of the percentiles and of the violations, which describe the requests that
arrive while their replicas live. If no replica is left, all later requests are dropped as well, and these violate the
SLO.

*Standby processes.* This is iGniter's handling of prediction errors (TPDS 2022, sections 4.2 and 5.3). Every second,
the P99 of all answers of a workload so far is compared with its SLO. If it exceeds the SLO, and still does so half a
second later, each replica of the workload switches once to a standby process. That process has more SMs, in whole
resource units: 10 % of the GPU's SMs are added, or as many as are left. In this replay, the batch in service and the
waiting requests move to the standby process.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.shared_gpus import share_of_units
from provision.models.plans.plan import Plan, Replica
from provision.models.plans.simulation_report import TARGET, Failure, SimulationSettings, Switch
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import carried_rps, predict_slice
from provision.simulation.deployment import Place, plan_slice
from provision.simulation.kernel import FOREVER, NS_PER_MS, NS_PER_S, Line, PlannedSlice, advance, answered, changed


def refuse_no_failure(instance: Instance, plan: Plan, settings: SimulationSettings, fail: Failure) -> None:
    """Check that a replay can lose the GPU. Raises InputError if the plan lacks the GPU, if the replay ends before the
    GPU fails, or if the instance has workflows.
    """
    if fail.gpu >= len(plan.gpus):
        last = len(plan.gpus) - 1
        raise InputError(f"simulate: fail: GPU {fail.gpu} is not in the plan, which has GPUs 0 to {last}")
    if fail.at_s >= settings.seconds:
        raise InputError(f"simulate: fail: {fail.at_s:g} s is after the end, {settings.seconds:g} s")
    if instance.workflows:
        raise InputError("simulate: fail is not for instances with workflows; leave one of them out")


def parts_after(instance: Instance, slices: Sequence[PlannedSlice], places: Sequence[Place],
                lost: int) -> list[float] | None:
    """The fractions of a workload's requests that its Places get after the loss of a GPU; None if no replica is left.

    Parameters
    ----------
    instance, slices
        The Instance, and every PlannedSlice.
    places
        The Places of one workload.
    lost
        The index of the lost GPU.
    """
    weights = []
    for place in places:
        planned = slices[place.slice]
        found = predict_slice(instance, planned.type, planned.piece)[place.replica]
        if found is None or planned.gpu == lost:
            weights.append(0.0)
        elif instance.policy.even_replicas:
            weights.append(1.0)
        else:
            weights.append(carried_rps(instance, planned.piece.replicas[place.replica], found))
    total = sum(weights)
    return [weight / total for weight in weights] if total else None


def before_failure(settings: SimulationSettings, planned: PlannedSlice, arrival_ns: Ints,
                   done_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """The arrival and answer times of a replica's requests that were answered before its GPU failed, and the arrival
    times of those that were lost.
    """
    if settings.fail is None or planned.gpu != settings.fail.gpu:
        return arrival_ns, done_ns, arrival_ns[:0]
    kept = done_ns <= settings.fail.at_s * NS_PER_S
    return arrival_ns[kept], done_ns[kept], arrival_ns[~kept]


EXTRA_SHARE = 0.1
CHECK_S, CONFIRM_S = 1.0, 0.5


def refuse_other_models(instance: Instance, plan: Plan) -> None:
    """Refuse a plan with a replica that iGniter's model does not describe; raise InputError."""
    for at, position, _, replica in plan.replicas():
        data = instance.performance_of(plan.gpus[at].gpu, instance.model_of(replica))
        if not isinstance(data, IgniterProfiles):
            raise InputError(
                f"shadow: {replica.workload} on GPU {at}, slice {position} is not under iGniter's model, so nothing "
                "tells what more SMs would do; leave the option out"
            )


def replay_with_shadows(instance: Instance, slices: Sequence[PlannedSlice], lines: Sequence[Line],
                        settings: SimulationSettings, replication: int) -> list[Switch]:
    """Replay all slices side by side. Workloads that miss their SLOs switch to their standby processes.

    Parameters
    ----------
    instance
        The Instance.
    slices, lines
        Every PlannedSlice and its Line. The lines are replayed to their end.
    settings
        SimulationSettings.
    replication
        The number of the replication, for the Switches.

    Returns
    -------
    list of Switch
    """
    slices, lines = list(slices), list(lines)
    switches: list[Switch] = []
    switched: set[str] = set()
    for second in np.arange(CHECK_S, settings.seconds, CHECK_S):
        _advance(lines, second)
        suspects = _late(instance, slices, lines, second) - switched
        if not suspects:
            continue
        second += CONFIRM_S
        _advance(lines, second)
        for name in sorted(_late(instance, slices, lines, second) & suspects):
            switched.add(name)
            switches += _switch(instance, slices, lines, settings, name, second, replication)
    _advance(lines)
    return switches


def _advance(lines: Iterable[Line], second: float | None = None) -> None:
    """Replay all slices up to a time in seconds, or to their ends."""
    for line in lines:
        advance(line, FOREVER if second is None else round(second * NS_PER_S))


def _late(instance: Instance, slices: Sequence[PlannedSlice], lines: Sequence[Line], second: float) -> set[str]:
    """The names of the workloads whose P99 so far exceeds the SLO."""
    latencies: dict[str, list[Ints]] = {}
    for planned, line in zip(slices, lines, strict=True):
        for at, replica in enumerate(planned.piece.replicas):
            arrival_ns, done_ns = answered(line, at)
            by_now = (done_ns > 0) & (done_ns <= second * NS_PER_S)
            latencies.setdefault(replica.workload, []).append((done_ns - arrival_ns)[by_now])
    joined = {name: np.concatenate(parts) for name, parts in latencies.items()}
    return {
        name
        for name, latency_ns in joined.items()
        if len(latency_ns) and np.mean(latency_ns <= instance.workload[name].slo_ms * NS_PER_MS) < TARGET
    }


def _switch(instance: Instance, slices: list[PlannedSlice], lines: list[Line], settings: SimulationSettings, name: str,
            second: float, replication: int) -> list[Switch]:
    """Give every replica of a workload the SM share of its standby process; return the Switches."""
    switches = []
    for index, planned in enumerate(slices):
        piece = planned.piece
        for at, replica in enumerate(piece.replicas):
            unit_share = _unit_share(instance, planned.type, replica)
            left = min(EXTRA_SHARE, 1 - sum(one.sm_share for one in piece.replicas))
            units = math.floor(left / unit_share + TOLERANCE)
            if replica.workload != name or units < 1:
                continue
            more = share_of_units(unit_share, round(replica.sm_share / unit_share) + units)
            grown = replica.model_copy(update={"sm_share": more})
            piece = piece.model_copy(update={"replicas": (*piece.replicas[:at], grown, *piece.replicas[at + 1 :])})
            switches.append(
                Switch(replication=replication, at_s=second, gpu=planned.gpu, workload=name,
                       from_share=replica.sm_share, to_share=more)
            )
        if piece is not planned.piece:
            slices[index] = plan_slice(instance, planned.gpu, planned.type, piece)
            lines[index] = changed(lines[index], slices[index], settings, second)
    return switches


def _unit_share(instance: Instance, gpu: str, replica: Replica) -> float:
    """The resource unit of the data that describes a replica; see ``refuse_other_models``."""
    data = instance.performance_of(gpu, instance.model_of(replica))
    assert isinstance(data, IgniterProfiles)
    return data.hardware.unit_share

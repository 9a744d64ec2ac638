"""The loss of a GPU in a replay: how requests are routed from then on, and which requests are lost.

After the loss, requests go to the remaining replicas in proportion to the rates that these can carry. With
``even_replicas`` they go in equal parts, and for language models in proportion to the planned rates. If the plan passes
the verifier's check of ``survive``, no replica is then overloaded. Requests that waited or ran on the lost GPU are
dropped. They are counted, but left out of the percentiles and of the violations, which describe the requests that
arrive while their replicas live. If no replica is left, all later requests are dropped as well, and these violate the
SLO.
"""

from collections.abc import Sequence

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.plans.simulation_report import Failure, SimulationSettings
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import carried_rps, predict_slice
from provision.simulation.deployment import Place
from provision.simulation.kernel import NS_PER_S
from provision.simulation.slices import PlannedSlice


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

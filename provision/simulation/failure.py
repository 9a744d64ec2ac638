"""The loss of a GPU in a replay: who serves from then on, and which requests are lost with it.

From the moment of the loss on requests go to the replicas that are left, each by the part that it can carry of what all
of them can, with ``even_replicas`` in equal parts, of language models in proportion to their rates: whoever survives by
the verifier's account is then overloaded nowhere. What waited or ran on the lost GPU is dropped; it is counted, and
left out of the percentiles: they tell how requests fare that reach a GPU which lives.
"""

from collections.abc import Sequence

import numpy as np

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
    """Complain when the GPU that fails is none of the plan, or when requests have stages.

    Raises
    ------
    InputError
        Naming the GPUs there are.
    """
    if fail.gpu >= len(plan.gpus):
        last = len(plan.gpus) - 1
        raise InputError(f"simulate: fail: GPU {fail.gpu} is not in the plan, which has GPUs 0 to {last}")
    if fail.at_s >= settings.seconds:
        raise InputError(f"simulate: fail: {fail.at_s:g} s is after the end, {settings.seconds:g} s")
    if instance.workflows:
        raise InputError("simulate: fail is not for instances with workflows; leave one of them out")


def parts_after(
    instance: Instance, slices: Sequence[PlannedSlice], places: Sequence[Place], lost: int
) -> list[float] | None:
    """The parts of a workload's requests that its Places get after the loss of a GPU; None when nobody is left.

    Parameters
    ----------
    instance, slices
        The Instance, and every PlannedSlice.
    places
        Those of one workload.
    lost
        Index of the GPU.
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


def before_failure(
    settings: SimulationSettings, planned: PlannedSlice, arrival_ns: Ints, done_ns: Ints
) -> tuple[tuple[Ints, Ints], int]:
    """Arrivals and answers of a replica without those that were lost, and the number of these."""
    if settings.fail is None or planned.gpu != settings.fail.gpu:
        return (arrival_ns, done_ns), 0
    kept = done_ns <= settings.fail.at_s * NS_PER_S
    return (arrival_ns[kept], done_ns[kept]), int(np.sum(~kept))

"""What is told of an instance beside its plan: that it is far too large, which parts of it cannot be used, and what its
latency rule does not guarantee.
"""

from collections.abc import Iterator

import numpy as np

from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import memory_notes
from provision.models.problem.workload import FleetEntry, Workload

MOST_SEGMENTS, MOST_OF_ONE = 3_000_000, 30_000
"""The most segments of an instance, and of one workload: a rate that needs more is a slip."""


def check_size(instance: Instance) -> None:
    """Refuse an instance that needs more than MOST_SEGMENTS segments, or MOST_OF_ONE for one workload, which would take
    all of this machine's memory.

    Raises
    ------
    InputError
        If it needs more. The message names the workload that needs the most segments.
    """
    table = best_segments(instance).throughput_rps
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    useful = np.minimum(table.max(axis=1, initial=0), cap_rps(instance))
    needed = np.divide(rate, useful, out=np.zeros_like(rate), where=useful > 0)
    needed = np.maximum(needed, [one.min_replicas for one in instance.workloads])
    if needed.sum() <= MOST_SEGMENTS and needed.max(initial=0) <= MOST_OF_ONE:
        return
    most = int(needed.argmax())
    workload = instance.workloads[most]
    raise InputError(
        f"{instance.name}: workloads[{most}].rate_rps: {workload.rate_rps:g} requests/s of {workload.name} need "
        f"about {needed[most]:.3g} slices; at most {MOST_OF_ONE:,} for a workload and {MOST_SEGMENTS:,} for an "
        "instance are planned at once; lower the rate, raise max_share_per_gpu, or split the instance"
    )


def notes_of(instance: Instance) -> tuple[str, ...]:
    """The notes on an instance, one line each."""
    return (*_unused(instance), *_narrow(instance), *memory_notes(instance), *_rated_patterns(instance))


def _able(instance: Instance, entry: FleetEntry, workload: Workload) -> bool:
    """Whether there is performance data of a workload for some slice of a fleet entry."""
    pairs = ((model, profile) for model in workload.models for profile in entry.profiles)
    return any(len(data.operating_points(model, profile).batch) for model, profile in pairs
               if (data := instance.performance_of(entry.gpu, model, profile)) is not None)


def _unused(instance: Instance) -> Iterator[str]:
    """Yield a note on every fleet entry for which no workload has performance data."""
    for index, entry in enumerate(instance.fleet):
        if not any(_able(instance, entry, workload) for workload in instance.workloads):
            yield (f"fleet[{index}]: {entry.gpu} stays unused, since no performance data describes any workload on it; "
                   "add some under performance")


def _narrow(instance: Instance) -> Iterator[str]:
    """Yield a note on every workload that only some of the GPU types can run."""
    types = list(dict.fromkeys(entry.gpu for entry in instance.fleet
                               if any(_able(instance, entry, workload) for workload in instance.workloads)))
    for workload in instance.workloads if len(types) > 1 else ():
        able = dict.fromkeys(entry.gpu for entry in instance.fleet if _able(instance, entry, workload))
        if 0 < len(able) < len(types):
            missing = ", ".join(gpu for gpu in types if gpu not in able)
            yield (f"workload {workload.name} can run on {', '.join(able)} only: there is no performance data of "
                   f"{' or '.join(workload.models)} on {missing}")


def _rated_patterns(instance: Instance) -> Iterator[str]:
    """Yield a note on what the latency rule half_slo does not guarantee."""
    if not instance.random_arrivals:
        yield (f"latency_budget {instance.policy.latency_budget} is about batches; under random arrivals requests may "
               "still be late (provision simulate tells how many, latency_budget queueing plans for them)")

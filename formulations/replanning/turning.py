"""Patterns of whole GPUs on which replicas take turns (gpu-lets), given what runs on the GPUs."""

from collections import Counter
from collections.abc import Sequence

from provision.formulations.assignment.patterns import SlicePattern
from provision.formulations.assignment.turns import every_pattern
from provision.formulations.replanning.running import Going, Key
from provision.formulations.search.segments import SliceType
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance


def turning(instance: Instance, slice_type: SliceType, data: Gpulets, here: Sequence[Going]) -> list[SlicePattern]:
    """List the patterns of whole GPUs on which replicas take turns.

    Parameters
    ----------
    instance, slice_type, data
        The problem, the slice type, and the data that describes it.
    here
        What runs on GPUs of this slice type.

    Raises
    ------
    TooManyError
        If feasibility depends on the rates, or if there are too many patterns.
    """
    most = Counter[Key]()
    for going in here:
        most |= Counter(going.keys)
    running = {(key.workload, key.model, key.sm_share): many for key, many in most.items()}
    return every_pattern(instance, slice_type, data, running)

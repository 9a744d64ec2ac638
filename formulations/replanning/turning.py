"""Patterns of whole GPUs on which replicas take turns (gpu-lets), given what runs on the GPUs."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.temporal.listing import listing
from provision.formulations.replanning.running import Going, Key
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import SliceType
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance

MOST_TURN_PATTERNS = 20_000
"""The most patterns that are listed if some replicas may go on."""


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
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    at = {group.members[0]: number for number, group in enumerate(groups)}
    most = Counter[Key]()
    for going in here:
        most |= Counter(key for key in going.keys if key.workload in at)
    running = {(at[key.workload], key.model, key.sm_share): many for key, many in most.items()}
    found = listing(Problem(instance, groups), slice_type, data, running)
    if found is None:
        raise TooManyError
    kept = np.arange(len(found.rps))
    if not running:
        asked = np.array([group.asked_rps for group in groups])
        kept = undominated(np.column_stack([np.minimum(found.rps / asked, 1), -found.number, -found.replicas]))
    elif len(kept) > MOST_TURN_PATTERNS:
        raise TooManyError
    patterns = []
    for one in kept.tolist():
        members, rps = found.rated(one)
        patterns.append(SlicePattern(tuple(
            PatternReplica(groups[group].members[0], run.model, run.batch, run.processes, run.sm_share, rate, run.turn)
            for (group, run), rate in zip(members, rps, strict=True)), sum(rps)))
    return patterns

"""Patterns of whole GPUs on which replicas take turns (gpu-lets): with the latency rule ``half_slo`` every replica runs
one batch per duty cycle, whatever rate is routed to it.
"""

from collections.abc import Mapping

import numpy as np

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.temporal.listing import listing
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance

MOST_PATTERNS = 20_000
"""The most patterns that are listed: replicas of the running plan may stay as they are."""

Running = Mapping[tuple[int, int, float], int]
"""The most running replicas of a GPU that may go on, by workload, model and SM share."""


def every_pattern(instance: Instance, slice_type: SliceType, data: Gpulets, running: Running, until: Deadline
                  ) -> list[SlicePattern]:
    """List the undominated patterns.

    Raises
    ------
    TooManyError
        If they cannot be listed: feasibility depends on the rates, there are too many, or the deadline comes first.
    """
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    at = {group.members[0]: number for number, group in enumerate(groups)}
    going = {(at[workload], model, share): many for (workload, model, share), many in running.items() if workload in at}
    found = listing(Problem(instance, groups), slice_type, data, going, until)
    if found is None:
        raise TooManyError
    kept = np.arange(len(found.rps))
    if not going:
        asked = np.array([group.asked_rps for group in groups])
        features = [np.minimum(found.rps / asked, 1), -found.number, -found.replicas]
        kept = undominated(np.column_stack(features), until=until)
    elif len(kept) > MOST_PATTERNS:
        raise TooManyError
    patterns = []
    for row in kept.tolist():
        members, rps = found.rated(row)
        patterns.append(SlicePattern(tuple(
            PatternReplica(groups[one.group].members[0], one.run.model, one.run.batch, one.run.processes,
                           one.run.sm_share, rate, one.run.turn)
            for one, rate in zip(members, rps, strict=True)), sum(rps)))
    return patterns

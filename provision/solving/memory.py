"""Refuses instances that are far too large.

A limit on the segments of a plan gives a message for a mistyped rate instead of exhausting this machine's memory.
"""

import numpy as np

from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance

MOST_SEGMENTS, MOST_OF_ONE = 3_000_000, 30_000
"""The most segments of an instance, and of one workload: a rate that needs more is a slip."""


def check_size(instance: Instance) -> None:
    """Refuse an instance that needs more than MOST_SEGMENTS segments, or MOST_OF_ONE for one workload.

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

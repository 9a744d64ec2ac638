"""A limit on the segments of a plan, so that a mistyped rate gives a message instead of exhausting the memory."""

import numpy as np

from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance

MOST_SEGMENTS = 3_000_000


def check_size(instance: Instance) -> None:
    """Refuse an instance that needs more than MOST_SEGMENTS segments.

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
    if needed.sum() <= MOST_SEGMENTS:
        return
    most = int(needed.argmax())
    workload = instance.workloads[most]
    raise InputError(
        f"{instance.name}: workloads[{most}].rate_rps: {workload.rate_rps:g} requests/s of {workload.name} need "
        f"about {needed[most]:.3g} slices, and the instance more than the {MOST_SEGMENTS} that are planned at "
        "once; lower the rate, raise max_share_per_gpu, or split the instance"
    )

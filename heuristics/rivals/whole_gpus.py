"""Plans of whole GPUs with one workload each, for methods that choose only how many GPUs of which type."""

from collections.abc import Callable

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, SliceType, best_segments
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search

FEATURES = frozenset({
    "tokens", "several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
    "variants", "isolated_data",
})
"""The features of instances that these methods can plan."""


Chosen = tuple[Ints | None, str]
"""The GPUs that a method chooses, (workloads, whole-GPU slice types), or None if it found none; and why they do not
suffice, empty if they do.
"""


def plan_whole_gpus(instance: Instance, search: Search, method: str, choose: Callable[[Segments, list[int]], Chosen]
                    ) -> Outcome:
    """Plan an instance with the GPUs that a method chooses.

    Parameters
    ----------
    instance, search, method
        The problem, the search, and the method's name.
    choose
        Called with the segments and the indices of the slice types that take a whole GPU.
    """
    segments = best_segments(instance)
    refused = proved_infeasible(instance, segments)
    if refused is not None:
        return refused
    whole = _whole_gpus(instance, segments)
    if not whole:
        return Outcome("unknown", "completed", reason=f"{method} plans whole GPUs, and no data describes one of them")
    gpus, reason = choose(segments, whole)
    if gpus is None:
        return Outcome("unknown", "completed", reason=reason)
    layouts = [
        Layout(segments.slice_types[whole[slice_type]].entry, ((whole[slice_type], at),))
        for at, slice_type in np.argwhere(gpus)
        for _ in range(gpus[at, slice_type])
    ]
    made = assemble(instance, segments, layouts, method)
    return Outcome("unknown" if reason else "feasible", "completed", made, reason=reason)


def _whole_gpus(instance: Instance, segments: Segments) -> list[int]:
    """The indices of the slice types that take a whole GPU."""
    return [at for at, slice_type in enumerate(segments.slice_types) if _fills_gpu(instance, slice_type)]


def _fills_gpu(instance: Instance, slice_type: SliceType) -> bool:
    """Whether a slice takes a whole GPU."""
    entry = instance.fleet[slice_type.entry]
    return not entry.partitioned or slice_type.compute == max(entry.type.slice_compute(one) for one in entry.profiles)

"""What methods for one GPU type with MIG and without MPS share: their features, their outcome."""

from time import perf_counter

from provision.models.assemble import Layout, assemble
from provision.models.method import Outcome

FEATURES = frozenset({"limited_counts", "with_mig", "without_mps", "isolated_data"})
"""What they plan: one GPU type with MIG, any performance data for isolated slices."""


def outcome(instance, segments, deployment, name, termination, times):
    """The Outcome of a list of GPUs, each a tuple of (kind, workload).

    ``times`` are perf_counters: when the method was called and when its input was ready.
    """
    started, built = times
    limit = instance.fleet[0].count
    if limit is None or len(deployment) <= limit:
        plan, reason = assemble(instance, segments, [Layout(0, config) for config in deployment], name), ""
    else:
        plan, reason = None, f"{name} needs {len(deployment)} GPUs and the fleet has {limit}"
    return Outcome(
        "feasible" if plan else "unknown", termination, plan, reason=reason,
        build_seconds=built - started, solve_seconds=perf_counter() - built,
    )

"""The common parts of methods for one GPU type with MIG and without MPS: their features and their outcome."""

from collections.abc import Callable, Sequence

from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, best_segments
from provision.heuristics.mig_serving.configs import Config
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search, Termination

FEATURES = frozenset({"limited_counts", "with_mig", "without_mps", "isolated_data"})
"""The features of instances that these methods can handle: one GPU type with MIG, any performance data for isolated
slices.
"""


def planned(
    instance: Instance, control: Search, name: str,
    deploy: Callable[[Segments], tuple[Segments, Sequence[Config], Termination]],
) -> Outcome:
    """The Outcome of a method that deploys workloads on MIG instances with one process each.

    Parameters
    ----------
    instance, control
        The instance and the search.
    name
        The name of the method.
    deploy
        The function that deploys: given the Segments, it returns the Segments that it used, the GPUs as tuples of
        (slice type, workload), and the termination.
    """
    segments = best_segments(instance, max_processes=1)
    refused = proved_infeasible(instance, segments)
    if refused:
        return refused
    build_seconds = control.elapsed_s
    segments, deployment, termination = deploy(segments)
    limit = instance.fleet[0].count
    if limit is None or len(deployment) <= limit:
        plan, reason = assemble(instance, segments, [Layout(0, config) for config in deployment], name), ""
    else:
        plan, reason = None, f"{name} needs {len(deployment)} GPUs and the fleet has {limit}"
    return Outcome("feasible" if plan else "unknown", termination, plan, reason=reason, build_seconds=build_seconds)

"""Mélange as a method: profiles of request sizes, its integer program, and whole GPUs of the types that it chooses.

Mélange pools the capacity of a GPU type. To reach that capacity, a router by request size would have to fill every GPU
completely. Plans here route without regard to size, in proportion to what each GPU carries of the whole mix. If that is
less than the rate, the outcome says so, and the verifier and a replay tell which limits are violated.
"""

from __future__ import annotations

import math

import numpy as np

from provision.formulations.search.segments import Segments, token_point
from provision.heuristics.melange.program import Pool, Service, allocate, buckets_of
from provision.heuristics.melange.whole_gpus import FEATURES, Chosen, plan_whole_gpus
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.tokens.lengths import Lengths, RequestTokens
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload

SLICE_FACTOR = 8


def plan(instance: Instance, search: Search) -> Outcome:
    """Plan an instance with whole GPUs of the types that the integer program chooses for every workload."""
    def choose(segments: Segments, whole: list[int]) -> Chosen:
        entries = [segments.slice_types[at].entry for at in whole]
        pools = [Pool(objective_of(instance).weight(instance.fleet[entry]), entry) for entry in entries]
        services = [Service(_loads(instance, segments, at, whole), one.min_replicas)
                    for at, one in enumerate(instance.workloads)]
        counts = {at: entry.count for at, entry in enumerate(instance.fleet) if entry.count is not None}
        found = allocate(services, pools, counts, search.positive("slice_factor", int), search.left_s)
        if found is None:
            return None, "melange found no whole GPUs for all request sizes"
        carried_rps = (found.servers * segments.throughput_rps[:, whole]).sum(axis=1)
        return found.servers, _lacking(instance, carried_rps)

    return plan_whole_gpus(instance, search, "melange", choose)


def _lacking(instance: Instance, carried_rps: Floats) -> str:
    """A sentence that names the workloads whose GPUs carry less of all sizes mixed than the rate; ``""`` if there are
    none.

    ``carried_rps`` (workloads,) is what the GPUs carry of all sizes mixed, in requests/s.
    """
    short = [f"{one.name} ({carried:.4g} of {instance.planned_rps(one):.4g} requests/s)"
             for one, carried in zip(instance.workloads, carried_rps, strict=True)
             if carried < instance.planned_rps(one) * (1 - TOLERANCE)]
    return ("melange's GPUs would need a router by request size, and carry less of all sizes mixed: "
            f"{', '.join(short)}") if short else ""


def _loads(instance: Instance, segments: Segments, at: int, whole: list[int]) -> Floats:
    """(buckets, pools) the GPUs that each bucket of a workload keeps busy; infinite on types that cannot run all sizes.
    """
    workload = instance.workloads[at]
    planned_rps, mixed_rps = instance.planned_rps(workload), segments.throughput_rps[at, whole]
    if workload.tokens is None:
        shares, rates = np.ones(1), mixed_rps[None]
    else:
        buckets = buckets_of(workload.tokens)
        shares = np.array([one.share for one in buckets])
        rates = np.array([[
            _bucket_rps(instance, workload, segments, at, slice_type, workload.tokens.model_copy(update={
                "input": Lengths(mean=one.prompt), "output": Lengths(mean=one.output)}))
            for slice_type in whole] for one in buckets])
    usable = (rates > 0) & (mixed_rps > 0)
    return np.where(usable, planned_rps * shares[:, None] / np.where(usable, rates, 1.0), math.inf)


def _bucket_rps(
    instance: Instance, workload: Workload, segments: Segments, at: int, slice_type: int, tokens: RequestTokens
) -> float:
    """Mélange's profile: the highest rate of requests of one size on a slice type, in requests/s."""
    model = workload.models[segments.model[at, slice_type]]
    entry = instance.fleet[segments.slice_types[slice_type].entry]
    data = instance.performance_of(entry.gpu, model)
    sized = workload.model_copy(update={"tokens": tokens})
    return token_point(instance, data, segments.slice_types[slice_type].profile, sized, model)[0]


METHODS = (
    Method(
        name="melange",
        summary="Mélange's integer program: request sizes dealt to pools of GPU types (language models)",
        run=plan,
        source="Mélange (Griggs et al., arXiv 2404.14527)",
        features=FEATURES,
        parameters={"slice_factor": SLICE_FACTOR},
    ),
)

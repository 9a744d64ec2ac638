"""Plans of gpu-lets from the decisions of a method, which are the loads of the parts of every GPU."""

from collections.abc import Iterable, Sequence

from provision.formulations.pricing.temporal.batches import largest_batches
from provision.formulations.pricing.temporal.tables import GpuletTables, Part
from provision.formulations.search.feasibility import late
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.search import Outcome, Status

FEATURES = frozenset({"limited_counts", "without_mig", "gpulets"})
"""The features of instances that methods for gpu-lets can plan."""


def gpulets_plan(tables: GpuletTables, gpus: Iterable[Sequence[Part]], method: str) -> Plan:
    """The plan for GPUs that are given as lists of (share, load), with the largest feasible batches.

    A share is an index into ``tables.shares``. A load is a tuple of (workload, rate in requests/s).
    """
    return tables.instance.plan_of(method, (
        PlannedGpu(gpu=tables.gpu.name, mig=False, slices=(Slice(profile=WHOLE, replicas=_replicas(tables, gpu)),))
        for gpu in gpus
    ))


def _replicas(tables: GpuletTables, parts: Sequence[Part]) -> tuple[Replica, ...]:
    """The replicas of one GPU. If a part has several replicas, they take turns."""
    return tuple(
        Replica(
            workload=tables.instance.workloads[one].name,
            batch=int(tables.batches[size]),
            sm_share=tables.shares[share],
            rate_rps=rate,
            turn=number if len(load) > 1 else None,
        )
        for number, ((share, load), batches) in enumerate(zip(parts, largest_batches(tables, parts), strict=True))
        for (one, rate), size in zip(load, batches, strict=True)
    )


def outcome(tables: GpuletTables, gpus: Sequence[Sequence[Part]] | None, method: str, stuck: str = "") -> Outcome:
    """The Outcome of a method that found ``gpus`` (lists of (share, load)), or none for the reason ``stuck``.

    If the plan was made without regard to interference and violates an SLO or rate by the data, the status is unknown.
    """
    count, plan, reason = tables.instance.fleet[0].count, None, stuck
    if gpus is not None and count is not None and len(gpus) > count:
        reason = f"{method} needs {len(gpus)} GPUs and the fleet has {count}"
    elif gpus is not None:
        plan = gpulets_plan(tables, gpus, method)
        missed = late(tables.instance, plan)
        reason = f"{', '.join(missed)}: too slow beside others for the SLO or the rate" if missed else ""
    status: Status = "unknown" if reason else "feasible"
    return Outcome(status, "completed", plan, reason=reason)

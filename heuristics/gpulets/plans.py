"""Makes plans of the parts of GPUs on which gpu-lets and methods like it place workloads.

Plans have the largest feasible batches (see `provision.formulations.pricing.temporal.oracle`). But a larger batch also
slows the other part of the GPU more. So plans that were made without interference keep the smallest batches.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from provision.formulations.pricing.temporal.oracle import largest_batches
from provision.formulations.pricing.temporal.tables import ALONE, Part, TurnTables
from provision.formulations.search.feasibility import late
from provision.models.base.arrays import Floats
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Status

FEATURES = frozenset({"limited_counts", "without_mig", "gpulets"})
"""The features of instances that methods for gpu-lets can plan."""


class GpuletTables(TurnTables):
    """The tables of the workloads of an instance that has one fleet entry.

    ``interference`` tells whether the parts of a GPU slow each other down.
    """

    def __init__(self, instance: Instance, interference: bool = True) -> None:
        names = [one.model for one in instance.workloads]
        super().__init__(
            cast("Gpulets", instance.sharing_of(instance.fleet[0].gpu, names)), names,
            [instance.budget_ms(one) for one in instance.workloads],
            [instance.planned_rps(one) for one in instance.workloads], instance.shared_rule,
        )
        self.instance, self.interference = instance, interference
        if not interference:
            self.own, self.pressure = np.ones_like(self.own), np.zeros_like(self.pressure)

    @cached_property
    def capacity_alone(self) -> Floats:
        """(shares, workloads) the most requests/s that a workload carries within its SLO if it has a share of an
        otherwise empty GPU.
        """
        return np.array([[self.capacity(share, one, ALONE) for one in range(len(self.rates))]
                         for share in range(len(self.shares))])

    def capacity(self, share: int, workload: int, pressure: float) -> float:
        """The most requests/s that a workload (by index) carries within its SLO if it has a share (by index) to itself,
        under a pressure from the other part; 0 if no batch keeps the SLO.
        """
        time_ms = self.beside(share, pressure)[workload]
        meets = 2 * time_ms <= self.allowed_ms[workload]
        return float((1000 * self.batches / time_ms)[meets].max(initial=0.0))

    def pressures(self, parts: Sequence[Part]) -> list[float]:
        """The pressure that each part of a GPU exerts on the other at the smallest batches. The parts must be feasible.
        """
        settled = self.settle(parts)
        assert settled is not None, "the parts hold"
        return [self.felt(share, load, batches) for (share, load), batches in zip(parts, settled, strict=True)]


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
        for number, ((share, load), batches) in enumerate(zip(parts, _batches(tables, parts), strict=True))
        for (one, rate), size in zip(load, batches, strict=True)
    )


def _batches(tables: GpuletTables, parts: Sequence[Part]) -> Sequence[Sequence[int]]:
    """The batch sizes of the parts' replicas, as indices. The parts must be feasible."""
    settled = tables.settle(parts)
    if len(parts) > 1 and not tables.interference and settled is not None:
        return settled
    return largest_batches(tables, parts)


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

"""Splits a workload that is too large for one GPU, as iGniter's public program does (github.com/icloud-ecnu/igniter).

The workload gets whole GPUs, with the largest batch that keeps its latency budget alone. Each whole GPU gets 0.9 of its
throughput with this batch, rounded up, as long as more than this rate is left. The rest of the rate is placed like any
workload.

iGniter, and the first-fit decreasing with which it is compared (TPDS 2022, Theorem 1, Algorithms 1 and 2).

From the paper: Theorem 1 gives the batch and the least resources of a workload alone (Algorithm 1, line 2). Workloads
are placed in descending order of these resources (line 3). Algorithm 2 allocates resources on every GPU with the
workload added (lines 6-8); the GPU whose resources grow least is chosen, the first of equals (lines 9-12), or a new GPU
if none has room (lines 13-17). ``ffd`` is the paper's FFD+, first fit by the lower bounds alone; ``ffd++`` takes the
first GPU on which Algorithm 2 finds room.

Where the paper is silent or the public program differs, this module does the following:

- A round of Algorithm 2 checks all workloads with the resources that they had before the round (program).
- Equal lower bounds keep the order of the instance (program).
- A GPU's growth includes the lower bound of the workload that is added; this is the same for all GPUs.
- The lower bound is found by a search over the resource units, not by rounding eq. 18 up.
- A workload on a new GPU also goes through Algorithm 2: the lower bound holds at full clock, and even alone a workload
  can exceed the power cap (Algorithm 1, line 14, leaves it at the lower bound).
- Batches are at most the largest batch that the data describes. If this is below Theorem 1's batch, the throughput
  decides; therefore a batch must be done within load + batch / rate as well as within half of the SLO.
- A workload that needs more than one GPU is split over whole GPUs (program).
- With several GPU types all workloads are placed on one type, the cheapest that serves them (section 5.3).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles, Terms, igniter_data, solo_terms, together
from provision.models.performance.shared_gpus import share_of_units
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search, Status
from provision.models.problem.workload import Workload

LOADED = 0.9
"""A whole GPU that serves a part of a workload gets at most this fraction of its throughput."""


class Split(NamedTuple):
    """The whole GPUs for parts of workloads that are too large, and the instance with the rest of their rates."""

    gpus: tuple[PlannedGpu, ...]
    rest: Instance


def split(instance: Instance, too_large: Iterable[int]) -> Split | None:
    """Give whole GPUs to the workloads of the given indices, which are too large for one GPU.

    Returns None if one of these workloads never keeps its SLO, or would need more replicas than it may have.
    """
    workloads, gpus = list(instance.workloads), []
    for at in too_large:
        workload = workloads[at]
        batch, carried_rps = _largest(instance, workload)
        loaded_rps, planned_rps = min(math.ceil(LOADED * carried_rps), carried_rps), instance.planned_rps(workload)
        number = math.ceil(planned_rps / loaded_rps) - 1 if batch else 0
        if number < 1 or (workload.max_replicas is not None and number + 1 > workload.max_replicas):
            return None
        replica = Replica(workload=workload.name, batch=batch, rate_rps=loaded_rps)
        whole = PlannedGpu(gpu=instance.fleet[0].gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=(replica,)),))
        gpus += [whole] * number
        left_rps = (planned_rps - number * loaded_rps) / instance.policy.planned_rps(1.0)
        workloads[at] = workload.model_copy(update={"rate_rps": left_rps})
    return Split(tuple(gpus), instance.replace(workloads=tuple(workloads)))


def _largest(instance: Instance, workload: Workload) -> tuple[int, float]:
    """(batch, requests/s) of the largest batch that keeps the latency budget on a whole GPU; zeros if none does."""
    data = igniter_data(instance.performance)[instance.fleet[0].gpu]
    points = data.operating_points(workload.model, WHOLE)
    meets = np.flatnonzero(np.isclose(points.sm_share, 1) & (points.latency_ms <= instance.budget_ms(workload)))
    if not len(meets):
        return 0, 0.0
    best = meets[points.batch[meets].argmax()]
    return int(points.batch[best]), float(points.throughput_rps[best])


@dataclass(frozen=True)
class _Variant:
    """A variant: whether interference counts (Algorithm 2), and whether GPUs are chosen by least growth or first
    fit."""

    name: str
    interference: bool = True
    least_growth: bool = True

    def __call__(self, instance: Instance, control: Search) -> Outcome:
        if len(instance.fleet) == 1:
            return self._on_one_type(instance, control)
        described = [
            entry for entry in instance.fleet
            if all(instance.performance_of(entry.gpu, one.model) is not None for one in instance.workloads)
        ]
        found = [self._on_one_type(instance.replace(fleet=(entry,)), control.anew()) for entry in described]
        reason = f"{self.name} takes one GPU type for all workloads, and no data describes all of them there"
        return _cheapest(instance, found) if found else Outcome("unknown", "completed", reason=reason)

    def _on_one_type(self, instance: Instance, control: Search) -> Outcome:
        """The outcome for an instance of one GPU type."""
        demands, rest = _Demands(instance), instance
        whole: tuple[PlannedGpu, ...] = ()
        if len(beyond := demands.beyond):
            pieces = split(instance, beyond)
            if pieces is None:
                return _refusal(instance, demands, beyond, self.name)
            whole, rest = pieces
            demands = _Demands(rest)
            if len(beyond := demands.beyond):
                return _refusal(rest, demands, beyond, self.name)
        build_seconds = control.elapsed_s
        packing = _Packing(demands, self)
        for workload in np.argsort(-demands.lower, kind="stable"):
            packing.place(workload)
        late = packing.late()
        status: Status = "unknown" if len(late) else "feasible"
        reason = _missed(instance, late) if len(late) else ""
        count, most = packing.count + len(whole), instance.fleet[0].count
        plan: Plan | None = instance.plan_of(self.name, (*whole, *packing.gpus(rest)))
        if most is not None and count > most:
            status, plan, reason = "unknown", None, f"{self.name} needs {count} GPUs and the fleet has {most}"
        return Outcome(status, "completed", plan, None, reason, build_seconds)


def _cheapest(instance: Instance, found: list[Outcome]) -> Outcome:
    """The best of the outcomes on each GPU type: plans without violations before others, then by the objective."""
    best = min(found, key=lambda one: (one.plan is None, one.status != "feasible", _loss(instance, one)))
    reason = "; ".join(dict.fromkeys(one.reason for one in found)) if best.plan is None else best.reason
    plan = best.plan and instance.adopted(best.plan)
    status: Status = "unknown" if best.status == "infeasible" else best.status
    return replace(best, status=status, plan=plan, reason=reason,
                   build_seconds=sum(one.build_seconds for one in found))


def _loss(instance: Instance, found: Outcome) -> float:
    """The objective of an outcome's plan, signed so that smaller is better; 0 without a plan."""
    return float(objective_of(instance).loss(objective_of(instance).value(found.plan))) if found.plan else 0.0


class _Demands:
    """The batches, deadlines and least resource units of the workloads, and the terms of their latency at every number
    of units. Arrays are (workloads + 1,): the last entry, all zeros, stands for an empty position on a GPU.
    """

    def __init__(self, instance: Instance) -> None:
        self.data = igniter_data(instance.performance)[instance.fleet[0].gpu]
        self.limit = self.data.hardware.units
        self.nobody = len(instance.workloads)
        self.batch = np.array([theorem_1_batch(instance, one, self.data) for one in instance.workloads])
        self.terms = self._terms(instance)
        self.deadline_ms = np.append(self._deadlines(instance), np.inf)

    def _terms(self, instance: Instance) -> Terms:
        """The terms of the latency model as arrays (workloads + 1, units + 1); they are 0 at 0 units."""
        shares = self.data.hardware.unit_share * np.arange(1.0, self.limit + 1)
        table = np.zeros((len(Terms._fields), self.nobody + 1, self.limit + 1))
        for index, (one, batch) in enumerate(zip(instance.workloads, self.batch, strict=True)):
            table[:, index, 1:] = solo_terms(self.data, one.model, batch, shares)
        return Terms(*table)

    def _deadlines(self, instance: Instance) -> Floats:
        """(workloads,), the longest batch latency, in ms, with which each workload keeps its budget and its rate.

        Source: equations 13 and 14.
        """
        budget_ms = np.array([instance.budget_ms(one) for one in instance.workloads])
        planned_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        every_ms = np.divide(1000 * self.batch, planned_rps, out=np.full_like(budget_ms, np.inf),
                             where=planned_rps > 0)
        return np.minimum(budget_ms, self.terms.load_ms[:-1, 1] + every_ms)

    @cached_property
    def lower(self) -> Ints:
        """(workloads,), the least units of each workload alone at full clock (eq. 18); limit + 1 if a whole GPU is too
        small.
        """
        terms = self.terms
        latency_ms = terms.load_ms + terms.scheduling_ms + terms.active_ms + terms.feedback_ms
        enough = latency_ms[:-1, 1:] <= self.deadline_ms[:-1, None]
        return np.where(enough.any(1), enough.argmax(1), self.limit) + 1

    @cached_property
    def alone(self) -> Ints:
        """(workloads,), the least units with which each workload, alone on a GPU, keeps its deadline. If its power
        exceeds the cap, the clock is lower. The number is above the limit if no number of units is enough.
        """
        return self.allocate(np.arange(self.nobody)[:, None], self.lower[:, None])[:, 0]

    @cached_property
    def beyond(self) -> Ints:
        """The indices of the workloads that need more than one GPU."""
        return np.flatnonzero(self.alone > self.limit)

    def late(self, members: Ints, units: Ints) -> Bools:
        """Whether each workload misses its deadline when it runs together with the other workloads of its GPU.

        All arrays are (GPUs, members): ``members`` has indices of workloads, ``units`` their numbers of SM units.
        """
        terms = Terms(*(column[members, units] for column in self.terms))
        return together(self.data.hardware, terms)[0] > self.deadline_ms[members]

    def allocate(self, members: Ints, units: Ints) -> Ints:
        """(GPUs, members), the units by Algorithm 2, computed for many GPUs at once: the units of late members grow
        until no member is late or the GPU is full.
        """
        units = units.copy()
        growing = np.flatnonzero(units.sum(1) <= self.limit)
        while len(growing):
            late = self.late(members[growing], units[growing])
            units[growing] += late
            growing = growing[late.any(1) & (units[growing].sum(1) <= self.limit)]
        return units


class _Packing:
    """GPUs that are being filled: ``members`` and their ``units`` are (GPUs, positions), with one free position on
    every GPU.
    """

    def __init__(self, demands: _Demands, variant: _Variant) -> None:
        self.demands, self.variant, self.count = demands, variant, 0
        self.members = np.full((demands.nobody, 2), demands.nobody)
        self.units = np.zeros_like(self.members)
        self.size = np.zeros(demands.nobody, int)

    def place(self, workload: int) -> None:
        """Put a workload on the GPU that the variant chooses, or on a new GPU (Algorithm 1, lines 5-17)."""
        lower = self.demands.lower[workload]
        used = self.units[: self.count].sum(1)
        open_ = np.flatnonzero(used + lower <= self.demands.limit)
        members, units = self._joined(open_, workload, lower)
        if self.variant.interference:
            units = self.demands.allocate(members, units)
        growth = units.sum(1) - used[open_]
        fits = np.flatnonzero(units.sum(1) <= self.demands.limit)
        if not len(fits):
            self._open(workload)
            return
        best = fits[growth[fits].argmin()] if self.variant.least_growth else fits[0]
        self._put(open_[best], members[best], units[best])

    def _joined(self, gpus: Ints | Sequence[int], workload: int, lower: int) -> tuple[Ints, Ints]:
        """(members, units) of some GPUs with the workload in the first free position."""
        members, units, free = self.members[gpus], self.units[gpus], self.size[gpus]
        members[np.arange(len(gpus)), free] = workload
        units[np.arange(len(gpus)), free] = lower
        return members, units

    def _open(self, workload: int) -> None:
        """Put a workload on a new GPU."""
        least = self.demands.alone if self.variant.interference else self.demands.lower
        members, units = self._joined([self.count], workload, least[workload])
        self.count += 1
        self._put(self.count - 1, members[0], units[0])

    def _put(self, gpu: int, members: Ints, units: Ints) -> None:
        """Set the members of a GPU and their units, and keep one position free."""
        self.members[gpu], self.units[gpu] = members, units
        self.size[gpu] += 1
        if self.size[gpu] == self.members.shape[1]:
            self.members = np.pad(self.members, ((0, 0), (0, 1)), constant_values=self.demands.nobody)
            self.units = np.pad(self.units, ((0, 0), (0, 1)))

    def late(self) -> Ints:
        """The indices of the workloads that miss their deadline at the end; there are none if Algorithm 2 is used."""
        members = self.members[: self.count]
        return np.sort(members[self.demands.late(members, self.units[: self.count])])

    def gpus(self, instance: Instance) -> list[PlannedGpu]:
        """The GPUs of the plan, with their replicas in the order of placement."""
        entry, unit_share = instance.fleet[0], self.demands.data.hardware.unit_share
        gpus = []
        for members, units, size in zip(self.members, self.units, self.size[: self.count], strict=False):
            replicas = tuple(
                Replica(
                    workload=instance.workloads[one].name,
                    batch=int(self.demands.batch[one]),
                    sm_share=share_of_units(unit_share, int(many)),
                    rate_rps=instance.planned_rps(instance.workloads[one]),
                )
                for one, many in zip(members[:size], units[:size], strict=True)
            )
            gpus.append(PlannedGpu(gpu=entry.gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=replicas),)))
        return gpus


def theorem_1_batch(instance: Instance, workload: Workload, data: IgniterProfiles) -> int:
    """The batch size that just carries the rate if a batch takes its whole latency budget (eq. 17)."""
    per_ms = instance.planned_rps(workload) / 1000
    load_ms = data.hardware.transfer_ms(data.models[workload.model].load_bytes)
    batch = instance.budget_ms(workload) * per_ms / (1 + per_ms * load_ms)
    return max(math.ceil(min(batch, data.max_batch)), 1)


def _refusal(instance: Instance, demands: _Demands, beyond: Ints, name: str) -> Outcome:
    """The outcome without a plan: infeasible if no GPU can keep an SLO, unknown if only iGniter's splitting failed."""
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    reason = "; ".join(_too_much(instance, instance.workloads[one], demands.data, name) for one in beyond)
    return Outcome("unknown", "completed", reason=reason)


def _too_much(instance: Instance, workload: Workload, data: IgniterProfiles, name: str) -> str:
    rate = most_rps(instance, workload, data) / instance.policy.planned_rps(1.0)
    return (
        f"workload {workload.name}: {name} needs more replicas than max_replicas allows for rate_rps "
        f"{workload.rate_rps:g}; rate_rps {math.floor(rate * 1000) / 1000:.12g} or less would work"
    )


def most_rps(instance: Instance, workload: Workload, data: IgniterProfiles) -> float:
    """The largest rate, in requests/s, whose batch by Theorem 1 keeps the latency budget on a whole GPU."""
    batch = np.arange(1, data.max_batch + 1)
    terms = solo_terms(data, workload.model, batch, 1.0)
    alone = Terms(*(column[:, None] for column in terms))
    latency_ms, throughput_rps = (column[:, 0] for column in together(data.hardware, alone))
    budget_ms = instance.budget_ms(workload)
    meets = latency_ms <= budget_ms
    by_theorem = 1000 * batch[meets] / (budget_ms - terms.load_ms[meets])
    return np.where(batch[meets] < data.max_batch, by_theorem, throughput_rps[meets]).max()


def _missed(instance: Instance, late: Ints) -> str:
    names = ", ".join(instance.workloads[one].name for one in late)
    return f"{len(late)} of {len(instance.workloads)} workloads miss their SLO or rate beside others: {names}"


def _method(variant: _Variant, summary: str) -> Method:
    return Method(
        name=variant.name,
        summary=summary,
        run=variant,
        source="iGniter, TPDS 2022, Theorem 1, Algorithms 1 and 2",
        features=frozenset(
            {"several_gpu_types", "limited_counts", "without_mig", "interference", "max_replicas", "max_throughput"}
        ),
    )


METHODS = (
    _method(_Variant("igniter"), "MPS shares and batches, each workload where interference costs least"),
    _method(
        _Variant("ffd", interference=False, least_growth=False),
        "first-fit decreasing that ignores interference",
    ),
    _method(_Variant("ffd++", least_growth=False), "first-fit decreasing with iGniter's allocation"),
)

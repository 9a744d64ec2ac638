"""iGniter and the first-fit decreasing it is compared with (TPDS 2022, Theorem 1, Algorithms 1 and 2).

Followed: Theorem 1 for the batch and the least resources of a workload alone (Algorithm 1, line 2), descending
order of these (line 3), Algorithm 2 on every GPU (lines 6-8), the GPU whose resources grow least, the first of
equals (lines 9-12), a new GPU when none takes the workload (lines 13-17). ``ffd`` is the paper's FFD+, the
lower bounds first-fit; ``ffd++`` takes the first GPU on which Algorithm 2 finds room.

Where the paper is silent or the public program differs, this does:

- a round of Algorithm 2 judges all workloads at the resources before the round (program);
- equal lower bounds keep the order of the instance (program);
- a GPU's growth counts the newcomer's lower bound too; it is the same for all GPUs;
- the lower bound is searched for over the resource units instead of rounded up from eq. 18;
- a workload on a new GPU goes through Algorithm 2 as well: the lower bound holds at full clock, and alone
  a workload can pass the power cap (Algorithm 1, line 14, leaves it there);
- batches stop at the largest that the data describes; below Theorem 1's batch the throughput decides, so a
  batch must be done within load + batch / rate as well as within half the SLO;
- a workload that needs more than one GPU is split over whole GPUs (program; `provision.heuristics.igniter.splitting`);
- with several GPU types all workloads go onto one of them, the cheapest that serves them (section 5.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.igniter.splitting import split
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import Terms, igniter_data, solo_terms, together
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.models.base.arrays import Bools, Floats, Ints
    from provision.models.performance.igniter import IgniterProfiles
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search, Status
    from provision.models.problem.workload import Workload


@dataclass(frozen=True)
class _Variant:
    """Whether neighbours count (Algorithm 2), and whether the least growth or the first fit decides."""

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
        """What is found on the only GPU type of an instance."""
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
    """The best of what was found on each GPU type: plans that hold before others, then by the objective."""
    best = min(found, key=lambda one: (one.plan is None, one.status != "feasible", _loss(instance, one)))
    reason = "; ".join(dict.fromkeys(one.reason for one in found)) if best.plan is None else best.reason
    plan = best.plan and instance.adopted(best.plan)
    status: Status = "unknown" if best.status == "infeasible" else best.status
    return replace(best, status=status, plan=plan, reason=reason,
                   build_seconds=sum(one.build_seconds for one in found))


def _loss(instance: Instance, found: Outcome) -> float:
    """The objective of a plan to be made small; 0 without a plan."""
    return float(objective_of(instance).loss(objective_of(instance).value(found.plan))) if found.plan else 0.0


class _Demands:
    """Batches, deadlines and least units of the workloads, and what they bring to a GPU at every unit count.

    Arrays are (workloads,); an extra last workload, with zeros, is nobody.
    """

    def __init__(self, instance: Instance) -> None:
        self.data = igniter_data(instance.performance)[instance.fleet[0].gpu]
        self.limit = self.data.hardware.units
        self.nobody = len(instance.workloads)
        self.batch = np.array([theorem_1_batch(instance, one, self.data) for one in instance.workloads])
        self.terms = self._terms(instance)
        self.deadline_ms = np.append(self._deadlines(instance), np.inf)

    def _terms(self, instance: Instance) -> Terms:
        """Terms of arrays (workloads, units), zeros at no units."""
        shares = self.data.hardware.unit_share * np.arange(1.0, self.limit + 1)
        table = np.zeros((len(Terms._fields), self.nobody + 1, self.limit + 1))
        for index, (one, batch) in enumerate(zip(instance.workloads, self.batch, strict=True)):
            table[:, index, 1:] = solo_terms(self.data, one.model, batch, shares)
        return Terms(*table)

    def _deadlines(self, instance: Instance) -> Floats:
        """Longest batch latencies that meet the latency budget and the rate (eqs. 13 and 14), in ms."""
        budget_ms = np.array([instance.budget_ms(one) for one in instance.workloads])
        planned_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        every_ms = np.divide(1000 * self.batch, planned_rps, out=np.full_like(budget_ms, np.inf),
                             where=planned_rps > 0)
        return np.minimum(budget_ms, self.terms.load_ms[:-1, 1] + every_ms)

    @cached_property
    def lower(self) -> Ints:
        """Least units alone at full clock (eq. 18); limit + 1 when a whole GPU is too little."""
        terms = self.terms
        latency_ms = terms.load_ms + terms.scheduling_ms + terms.active_ms + terms.feedback_ms
        enough = latency_ms[:-1, 1:] <= self.deadline_ms[:-1, None]
        return np.where(enough.any(1), enough.argmax(1), self.limit) + 1

    @cached_property
    def alone(self) -> Ints:
        """Least units alone at the clock the GPU then runs at; above the limit when there are none."""
        return self.allocate(np.arange(self.nobody)[:, None], self.lower[:, None])[:, 0]

    @cached_property
    def beyond(self) -> Ints:
        """Workloads that one GPU does not carry."""
        return np.flatnonzero(self.alone > self.limit)

    def late(self, members: Ints, units: Ints) -> Bools:
        """Which members of each GPU miss their deadline; arrays (GPUs, members)."""
        terms = Terms(*(column[members, units] for column in self.terms))
        return together(self.data.hardware, terms)[0] > self.deadline_ms[members]

    def allocate(self, members: Ints, units: Ints) -> Ints:
        """Algorithm 2 on many GPUs at once: units grow until nobody is late or the GPU is overfull."""
        units = units.copy()
        growing = np.flatnonzero(units.sum(1) <= self.limit)
        while len(growing):
            late = self.late(members[growing], units[growing])
            units[growing] += late
            growing = growing[late.any(1) & (units[growing].sum(1) <= self.limit)]
        return units


class _Packing:
    """GPUs being filled: ``members`` and their ``units``, (GPUs, places), with a free place on every GPU."""

    def __init__(self, demands: _Demands, variant: _Variant) -> None:
        self.demands, self.variant, self.count = demands, variant, 0
        self.members = np.full((demands.nobody, 2), demands.nobody)
        self.units = np.zeros_like(self.members)
        self.size = np.zeros(demands.nobody, int)

    def place(self, workload: int) -> None:
        """Put a workload on the GPU that suits it, or on a new one (Algorithm 1, lines 5-17)."""
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
        """Members and units of some GPUs with the workload in their first free place."""
        members, units, free = self.members[gpus], self.units[gpus], self.size[gpus]
        members[np.arange(len(gpus)), free] = workload
        units[np.arange(len(gpus)), free] = lower
        return members, units

    def _open(self, workload: int) -> None:
        """A new GPU for a workload."""
        least = self.demands.alone if self.variant.interference else self.demands.lower
        members, units = self._joined([self.count], workload, least[workload])
        self.count += 1
        self._put(self.count - 1, members[0], units[0])

    def _put(self, gpu: int, members: Ints, units: Ints) -> None:
        """Note which replicas stand on a GPU, and keep a place free."""
        self.members[gpu], self.units[gpu] = members, units
        self.size[gpu] += 1
        if self.size[gpu] == self.members.shape[1]:
            self.members = np.pad(self.members, ((0, 0), (0, 1)), constant_values=self.demands.nobody)
            self.units = np.pad(self.units, ((0, 0), (0, 1)))

    def late(self) -> Ints:
        """Workloads that miss their deadline in the end; with Algorithm 2 there are none."""
        members = self.members[: self.count]
        return np.sort(members[self.demands.late(members, self.units[: self.count])])

    def gpus(self, instance: Instance) -> list[PlannedGpu]:
        """The GPUs of a plan, members in the order in which they came."""
        entry, share = instance.fleet[0], self.demands.data.hardware.unit_share
        gpus = []
        for members, units, size in zip(self.members, self.units, self.size[: self.count], strict=False):
            replicas = tuple(
                Replica(
                    workload=instance.workloads[one].name,
                    batch=int(self.demands.batch[one]),
                    sm_share=round(int(many) * share, 9),
                    rate_rps=instance.planned_rps(instance.workloads[one]),
                )
                for one, many in zip(members[:size], units[:size], strict=True)
            )
            gpus.append(PlannedGpu(gpu=entry.gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=replicas),)))
        return gpus


def theorem_1_batch(instance: Instance, workload: Workload, data: IgniterProfiles) -> int:
    """The batch that just carries the rate when it takes its whole latency budget (eq. 17)."""
    per_ms = instance.planned_rps(workload) / 1000
    load_ms = data.hardware.transfer_ms(data.models[workload.model].load_bytes)
    batch = instance.budget_ms(workload) * per_ms / (1 + per_ms * load_ms)
    return max(math.ceil(min(batch, data.max_batch)), 1)


def _refusal(instance: Instance, demands: _Demands, beyond: Ints, name: str) -> Outcome:
    """Infeasible where no GPU meets an SLO; unknown where only iGniter's way to split it needs too many."""
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    reason = "; ".join(_too_much(instance, instance.workloads[one], demands.data, name) for one in beyond)
    return Outcome("unknown", "completed", reason=reason)


def _too_much(instance: Instance, workload: Workload, data: IgniterProfiles, name: str) -> str:
    rate = most_rps(instance, workload, data) / (1 + instance.policy.headroom)
    return (
        f"workload {workload.name}: {name} needs more replicas than max_replicas allows for rate_rps "
        f"{workload.rate_rps:g}; rate_rps {math.floor(rate * 1000) / 1000:.12g} or less would work"
    )


def most_rps(instance: Instance, workload: Workload, data: IgniterProfiles) -> float:
    """The largest rate whose batch by Theorem 1 meets the latency budget on a GPU of its own."""
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
        quick=True,
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

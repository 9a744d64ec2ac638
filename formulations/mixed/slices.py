"""Mixed slices: GPUs whose slices hold segments, or are shared by different workloads.

The plan comes from a search on ever fewer or cheaper GPUs (``plan``, ``search``). The bound comes from a relaxation of
``partition_counts`` in which slices may be shared at levels (``levels``): beside ``x`` and ``y`` there are integers
``m[k, l]`` (slices of kind k shared at level l), fractions ``n[w, k, l]`` (processes of workload w on them) and parts
``share[w, k, l]`` of the workload's rate. The relaxation ignores memory and does not tell slices of a kind apart; in
each interval of utilisation it has the slowdown of the lower and the capacity of the upper end.
"""

import math
from collections import defaultdict
from dataclasses import replace
from time import perf_counter

import numpy as np
import pulp

from provision.formulations.isolated.partition_counts import PartitionCounts
from provision.formulations.mixed.levels import RELAXED, clients, relaxed
from provision.formulations.mixed.plan import NAME, RuinAndRecreate
from provision.models.base.tolerances import FORGIVEN
from provision.models.contents.alone.feasibility import unservable
from provision.models.contents.alone.segments import Segments, best_segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

GENEROUS = 1 + FORGIVEN
"""The factor by which the relaxation loosens limits: more than the verifier's tolerances add up to."""
FIRST_S, FIRST_PART = 1.0, 0.1
"""Seconds, and part of the time limit, that the search may take at most before the bound."""
BOUND_PART = 0.4
"""Part of the time limit that the bound may take."""


Way = tuple[int, int, int]
"""A workload on a shared slice: its index, the slice kind, the level."""


class Relaxation(PartitionCounts):
    """Partition counts with shared slices, whose bound holds for all plans.

    Parameters
    ----------
    instance, segments
        As for PartitionCounts, but a workload need not have a segment.
    """

    def __init__(self, instance: Instance, segments: Segments) -> None:
        super().__init__(instance, segments)
        self.shared = relaxed(instance, segments)
        ways: list[Way] = [(w, k, level) for w, k, level in np.argwhere(self.shared.batch[..., 0]).tolist()]
        self.of_workload: dict[int, list[Way]] = defaultdict(list)
        self.on: dict[tuple[int, int], list[Way]] = defaultdict(list)
        for at in ways:
            self.of_workload[at[0]].append(at)
            self.on[at[1:]].append(at)
        self.m = {at: self._count("m_{}_{}".format(*at)) for at in sorted(self.on)}
        self.share = {at: self._part("share", at, int(self.rate_rps[at[0]] > 0)) for at in ways}
        self.n = {at: self._part("n", at, None) for at in ways}

    def _part(self, name: str, at: Way, most: int | None) -> pulp.LpVariable:
        return self.problem.add_variable("_".join(map(str, (name, *at))), 0, most)

    def carry_rates(self, share: float | pulp.LpVariable = 1) -> None:
        """Segments and shared slices together carry every workload's planned rate."""
        for w, rate in enumerate(self.rate_rps):
            if rate > 0:
                terms = [min(self.useful_rps[w, k] / rate, 1) * self.x[w, k] for k in self.kinds_of[w]]
                terms += [self.share[at] for at in self.of_workload[w]]
                self.problem += pulp.lpSum(terms) >= share / GENEROUS

    def keep_replicas(self) -> None:
        """A workload has at least its least number of replicas; on a shared slice a process may be one."""
        for w, workload in enumerate(self.instance.workloads):
            replicas = [self.x[w, k] for k in self.kinds_of[w]]
            replicas += [self.n[at] for at in self.of_workload[w]]
            self.problem += pulp.lpSum(replicas) >= workload.min_replicas

    def fit_slots(self) -> None:
        """Segments and shared slices of a kind are no more than its slots."""
        for k in range(len(self.segments.kinds)):
            taken = [self.x[w, k] for w in range(len(self.rate_rps)) if (w, k) in self.x]
            taken += [slices for (kind, _), slices in self.m.items() if kind == k]
            self.problem += pulp.lpSum(taken) <= pulp.lpDot(self.partitions.slots[:, k].tolist(), self.y)

    def keep_levels(self) -> None:
        """Shared slices are not used beyond their level."""
        for (k, level), slices in self.m.items():
            busy = [float(self.shared.busy[*at, 0] * self.rate_rps[at[0]]) * self.share[at] for at in self.on[k, level]]
            self.problem += pulp.lpSum(busy) <= GENEROUS * RELAXED[level].capacity * slices

    def run_processes(self) -> None:
        """Processes carry the rates, as many as a level allows."""
        for at, part in self.share.items():
            carried = self.shared.rps[*at, 0] / max(self.rate_rps[at[0]], 1e-9)
            self.problem += part <= min(GENEROUS * float(carried), 1) * self.n[at]
        for (k, level), slices in self.m.items():
            most = clients(self.instance, self.segments.kinds[k], RELAXED[level])
            self.problem += pulp.lpSum(self.n[at] for at in self.on[k, level]) <= most * slices

    def state(self) -> None:
        """Add the objective and all rows."""
        self.aim()
        self.carry_rates()
        self.keep_replicas()
        self.fit_slots()
        self.respect_fleet()
        self.keep_levels()
        self.run_processes()

    def alone_or_shared(self) -> Segments:
        """The segments, with the most that a process carries on a shared slice where that is more."""
        most_rps = self.shared.rps.max(axis=(2, 3), initial=0)
        return replace(self.segments, throughput_rps=np.maximum(self.segments.throughput_rps, most_rps))


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance whose policy lets workloads share slices; Ctrl-C returns the best so far."""
    segments = best_segments(instance)
    run = _Run(instance, RuinAndRecreate(instance, segments, control.positive("ruins", int), control.seed), control)
    started = perf_counter()  # now that the search has compiled its kernels
    try:
        found = run.ended(segments, started)
    except KeyboardInterrupt:
        found = run.outcome("stopped")
    return replace(found, solve_seconds=perf_counter() - started - found.build_seconds)


class _Run:
    """The best plan so far, None if none, and the bound, 0 if none."""

    def __init__(self, instance: Instance, search: RuinAndRecreate, control: Search) -> None:
        self.instance, self.search, self.control = instance, search, control
        self.plan: Plan | None = None
        self.bound = 0.0

    def ended(self, segments: Segments, started: float) -> Outcome:
        """The Outcome: a first plan soon, then the bound, then better plans until proved or out of time."""
        limit_s = self.control.time_limit_s
        self.improve(started + min(FIRST_S, FIRST_PART * limit_s))
        building = perf_counter()
        relaxation = Relaxation(self.instance, segments)
        refused = "; ".join(unservable(self.instance, relaxation.alone_or_shared()))
        if refused:
            return Outcome("infeasible", "proved", reason=refused)
        relaxation.state()
        built = perf_counter()
        self.bound = relaxation.proven_bound(built + BOUND_PART * limit_s)
        if math.isinf(self.bound):
            reason = "the fleet has too few GPUs, even with slices shared; allow more"
            return Outcome("infeasible", "proved", reason=reason)
        self.tell()
        self.improve(started + limit_s)
        ended: Termination = "completed" if perf_counter() < started + limit_s else "time_limit"
        return replace(self.outcome(ended), build_seconds=built - building)

    def improve(self, until: float) -> None:
        """Search until a perf_counter, or until there is no more to find."""
        if not self.proved:
            for plan in self.search.plans(self.plan or self.control.start, self.bound, until):
                self.plan = plan
                self.tell()

    def tell(self) -> None:
        """Report the best so far."""
        value = self.instance.value(self.plan) if self.plan else None
        self.control.report(Incumbent(value, self.bound or None))

    @property
    def proved(self) -> bool:
        """Whether no plan can be better."""
        return self.plan is not None and self.instance.proved(self.instance.value(self.plan), self.bound)

    def outcome(self, ended: Termination) -> Outcome:
        """What is known, as an Outcome."""
        bound = self.bound or None
        if self.plan is None:
            return Outcome("unknown", ended, bound=bound, reason="no plan found; more time, or greedy, may find one")
        if self.proved:
            return Outcome("optimal", "proved", self.plan, bound)
        return Outcome("feasible", ended, self.plan, bound)


METHODS = (
    Method(
        name=NAME,
        summary="segments and slices that different workloads share: ruin and recreate, bound by a relaxation",
        run=solve,
        exact=True,
        source="this package",
        features=ISOLATED - {"max_share_per_gpu", "variants"} | {"share_slices"},
        parameters={"ruins": 200_000},
    ),
)

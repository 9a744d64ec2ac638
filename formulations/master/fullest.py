"""The master program for most throughput on a fixed fleet: patterns as columns, with the rates that they carry.

    maximise   requests/s of all patterns
    types      partitions of GPU type t  <=  GPUs that the fleet has
    slices     patterns on slice type k  <=  slices of that kind in the partitions
    demand     requests/s of a group's replicas  >=  the rates of its workloads
    replicas   of a group  >=  the least, and  <=  the most that its workloads may have

What a replica could carry does not depend on what is routed, so rates are split at will and need no roles. Take any
prices, none below 0, of requests/s and of replicas: no plan carries more than the patterns of all GPUs are then worth,
less what the demand is worth (Lagrangian bound). `capacities` tells what no pattern of a slice is worth more than.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.rate_plans import Column, Judge
from provision.formulations.master.restricted import Columns, Known, RestrictedMaster
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rate_oracles import running_alone
from provision.formulations.pricing.rates import GENEROUS, Member, Members, RateOracle, Worth
from provision.formulations.search.problem import ENDLESS, Problem
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import MISSING, SETTLED
from provision.models.plans.plan import Plan

Floats = NDArray[np.float64]
MISSED = 100.0
"""What a missing request/s costs while columns are sought, in requests/s; a replica as many as its group's best."""
Filled = tuple[list[NDArray[np.int64]], list[Column]]
"""(partitions,) GPUs by pool, and the patterns of their slices."""


class FullFleet:
    """The columns for one Problem of most throughput, whose pools have counts; ``bound`` is proven, in requests/s.

    Parameters
    ----------
    problem
        The Problem.
    oracles
        What patterns of shared slices could carry, by slice type.
    """

    def __init__(self, problem: Problem, oracles: dict[int, list[RateOracle]]) -> None:
        self.problem, self.oracles, self.bound, self.judge = problem, oracles, np.inf, Judge(problem)
        groups = problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.demand_rps = members * [group.rate_rps for group in groups]
        self.least = members * [group.least for group in groups]
        self.most = np.minimum(members * [group.most for group in groups], ENDLESS)
        self.cap_rps = np.array([group.cap_rps for group in groups])
        self.floor_rps = np.array([group.rate_rps if group.most == 1 else 0.0 for group in groups]) * (1 - MISSING)
        self.count = np.array([pool.count or 0 for pool in problem.pools], float)
        self.single_rps = np.where(problem.single_rps >= self.floor_rps[:, None], problem.single_rps, 0.0)
        self.master = RestrictedMaster(problem, self.count, demand=self.demand_rps, at_least=self.least,
                                       at_most=-self.most)
        self.first = {name: rows.start for name, rows in self.master.rows.items()}
        self.columns, self.rated_already = Known[Column](), Known[Column]()
        for one in self._alone():
            self._known(one)
        self.best = np.zeros(len(self.master.right))
        self.price(self.best)

    def add_plan(self, plan: Plan) -> bool:
        """Add the patterns of a plan, as far as they hold with all replicas busy; returns whether all do."""
        held = True
        slice_types = {(self.problem.instance.fleet[slice_type.entry].gpu, slice_type.profile): at
                 for at, slice_type in reversed(list(enumerate(self.problem.segments.slice_types)))}
        group_of = {self.problem.instance.workloads[member].name: at for at, group in enumerate(self.problem.groups)
                    for member in group.members}
        for gpu in plan.gpus:
            for piece in gpu.slices:
                members = tuple(Member(group_of[one.workload], Running(
                    self.problem.groups[group_of[one.workload]].models.index(self.problem.instance.model_of(one)),
                    one.batch, one.processes, one.sm_share, one.turn)) for one in piece.replicas)
                held &= self._add(slice_types[gpu.gpu, piece.profile], [members])
        return held

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Tighten the bound until no prices are better or time is over; yields it after every round.

        What tables promise is a column for bounds.
        """
        while not until.over:
            before, (known, *others) = len(self.rated_already), self.columns_of(self.columns, whole=False)
            found = self.master.relaxed([known, self.master.known(self.rated_already), *others])
            if found is None:
                return
            self.price(found.duals)
            yield self.bound
            if self.bound <= -found.value * (1 + SETTLED) or len(self.rated_already) == before:
                return
            self.price((1 - SCHEDULE.inward) * self.best + SCHEDULE.inward * found.duals)

    def price(self, duals: Floats, until: Deadline | None = None, asked_rps: Floats | float = np.inf) -> None:
        """Prove a bound at some dual prices, and add patterns that are worth more at these than their slice.

        Parameters
        ----------
        duals
            (rows,) of a linear program.
        until
            When to add no more, by default never.
        asked_rps
            (groups,) how much demand is left: requests/s of a replica beyond this are worth 1 each, and the worth of
            patterns is then no bound.
        """
        _, slices, per_rps, least, most = self.master.split(duals).values()
        caps_rps = np.minimum(self.cap_rps, asked_rps)
        worth = Worth(1 + per_rps, least - most, caps_rps)
        best = worth.of(self.single_rps * GENEROUS).max(axis=0, initial=0.0)
        for slice_type, several in self.oracles.items():
            for one in several:
                floor = slices[slice_type] * (1 + SETTLED)
                found = one.price(worth, floor, 0)
                if found.most > floor:
                    for at in range(len(found.patterns.rps)):
                        column = Column(slice_type, *found.patterns.rated(at))
                        self.rated_already.add(column, self.entries(column, capped=False), -sum(column.rps))
                    self._add(slice_type, found.likely, one.batches, until)
                best[slice_type] = max(best[slice_type], found.most)
        full = sum(many * float((pool.partitions @ best).max())
                   for many, pool in zip(self.count, self.problem.pools, strict=True))
        asked = per_rps @ self.demand_rps * (1 - MISSING) + least @ self.least
        bound = float((full + most @ self.most) * GENEROUS - asked)
        if bound < self.bound and (caps_rps == self.cap_rps).all():
            self.bound, self.best = bound, duals

    def add_near(self, one: Column, until: Deadline) -> None:
        """Until a time add patterns that hold and are like a given one."""
        for oracle in self.oracles.get(one.slice_type, []):
            self._add(one.slice_type, oracle.near(one.members), oracle.batches, until)

    def chosen(self, time_limit_s: float) -> Filled | None:
        """A whole-number solution over the patterns so far; None when none is found."""
        found = self.master.integral(self.columns_of(self.columns), time_limit_s)
        return None if found.x is None else self.filled(found.x, list(self.columns))

    def filled(self, numbers: Floats, patterns: Sequence[Column | None]) -> Filled | None:
        """GPUs and patterns of a solution; None where it takes a pattern whose operating points are unknown."""
        many, gpus = np.split(np.rint(numbers).astype(int), [len(patterns)])
        taken = [one for one, times in zip(patterns, many, strict=True) for _ in range(times)]
        known = [one for one in taken if one is not None]
        return (self.master.gpus(gpus), known) if len(known) == len(taken) else None

    def _alone(self) -> Iterator[Column]:
        """Replicas that have a slice to themselves."""
        for at, slice_type in np.argwhere(self.single_rps > 0).tolist():
            found = self.judge.held(slice_type, (Member(at, running_alone(self.problem, at, slice_type)),), ())
            if found is not None:
                yield found

    def _add(self, slice_type: int, patterns: Iterable[Members], batches: Sequence[int] = (),
             until: Deadline | None = None) -> bool:
        """Until a time add patterns that hold, with batches lowered if need be; returns whether all hold."""
        found = [self.judge.held(slice_type, members, batches) for members in patterns
                 if until is None or not until.over]
        for one in found:
            if one is not None:
                self._known(one)
        return None not in found

    def _known(self, one: Column) -> None:
        """Keep a pattern that holds."""
        self.columns.add(one, self.entries(one), -sum(one.rps))

    def columns_of(self, known: Known[Column], whole: bool = True) -> list[Columns]:
        """All columns of the program over some patterns: these, partitions, and unless ``whole`` what is missing."""
        return [self.master.known(known), self.master.partitions, *([] if whole else [self._missing])]

    def entries(self, one: Column, capped: bool = True) -> list[tuple[int, float]]:
        """The entries of a pattern; where ``capped``, all its replicas of a group carry no more than one GPU may."""
        first, found = self.first, [(self.first["slices"] + one.slice_type, -1.0)]
        group = np.array([member.group for member in one.members])
        for at in set(group.tolist()):
            rps, number = np.array(one.rps)[group == at], float((group == at).sum())
            carried = float(np.minimum(rps, self.cap_rps[at]).sum())  # what a bound grants, replica by replica
            found += [(first["demand"] + at, min(carried, float(self.cap_rps[at])) if capped else carried),
                      (first["at_least"] + at, number), (first["at_most"] + at, -number)]
        return found

    @cached_property
    def _missing(self) -> Columns:
        """Requests/s and replicas that are missing, at a cost."""
        groups = len(self.demand_rps)
        one, none = np.eye(groups), np.zeros((groups, groups))
        cost = MISSED * np.concatenate([np.ones(groups), self.single_rps.max(axis=1)])
        return self.master.columns(cost, demand=np.hstack([one, none]), at_least=np.hstack([none, one]))

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
from itertools import pairwise
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.formulations.master.held import Column, Judge
from provision.formulations.pricing.capacities import LOOSE, Capacities, Member, Members, Worth, running_alone
from provision.formulations.pricing.oracle import Running
from provision.formulations.search.problem import Problem
from provision.models.base.tolerances import MISSING
from provision.models.plans.plan import Plan

Floats = NDArray[np.float64]
MISSED = 100.0
"""What a missing request/s costs while columns are sought, in requests/s; a replica as many as its group's best."""
SETTLED = 1e-7
"""Relative distance of bound and linear program at which no more columns are sought."""
SMOOTH = 0.6
"""The part of the prices of the best bound in those that are tried first."""
ENDLESS = 1e9
"""A number of replicas that stands for no limit."""


Filled = tuple[list[NDArray[np.int64]], list[Column]]
"""(partitions,) GPUs by pool, and the patterns of their slices."""


class FullFleet:
    """The columns for one Problem of most throughput, whose pools have counts; ``bound`` is proven, in requests/s.

    Parameters
    ----------
    problem
        The Problem.
    capacities
        What patterns of shared slices could carry, by slice type.
    """

    def __init__(self, problem: Problem, capacities: dict[int, list[Capacities]]) -> None:
        self.problem, self.capacities, self.bound, self.judge = problem, capacities, np.inf, Judge(problem)
        groups = problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.demand_rps = members * [group.rate_rps for group in groups]
        self.least = members * [group.least for group in groups]
        self.most = np.minimum(members * [group.most for group in groups], ENDLESS)
        self.cap_rps = np.array([group.cap_rps for group in groups])
        self.floor_rps = np.array([group.rate_rps if group.most == 1 else 0.0 for group in groups]) * (1 - MISSING)
        self.count = np.array([pool.count or 0 for pool in problem.pools], float)
        self.single_rps = np.where(problem.single_rps >= self.floor_rps[:, None], problem.single_rps, 0.0)
        self.columns = dict.fromkeys(self._alone())
        self.rated_already: dict[Column, None] = {}
        self.best = np.zeros(len(self.count) + len(problem.segments.slice_types) + 3 * len(groups))
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

    def rounds(self, until: float) -> Iterator[float]:
        """Tighten the bound until no prices are better or a perf_counter; yields it after every round.

        What tables promise is a column for bounds.
        """
        while perf_counter() < until:
            found, before = (
                solve_linear(self.rows([*self.columns, *self.rated_already], missing=True)),
                len(self.rated_already),
            )
            if found is None:
                return
            self.price(found.duals)
            yield self.bound
            if self.bound <= -found.value * (1 + SETTLED) or len(self.rated_already) == before:
                return
            self.price(SMOOTH * self.best + (1 - SMOOTH) * found.duals)

    def price(self, duals: Floats, until: float = np.inf, asked_rps: Floats | float = np.inf) -> None:
        """Prove a bound at some dual prices, and add patterns that are worth more at these than their slice.

        Parameters
        ----------
        duals
            (rows,) of a linear program.
        until
            The perf_counter from which on none is added.
        asked_rps
            (groups,) how much demand is left: requests/s of a replica beyond this are worth 1 each, and the worth of
            patterns is then no bound.
        """
        pools, slice_types, groups = len(self.count), len(self.problem.segments.slice_types), len(self.demand_rps)
        _, slices, per_rps, least, most = np.split(duals, np.cumsum([pools, slice_types, groups, groups]))
        caps_rps = np.minimum(self.cap_rps, asked_rps)
        worth = Worth(1 + per_rps, least - most, caps_rps)
        best = worth.of(self.single_rps * LOOSE).max(axis=0, initial=0.0)
        for slice_type, several in self.capacities.items():
            for one in several:
                value, rated_patterns, found = one.price(worth)
                if value > slices[slice_type] * (1 + SETTLED):
                    self.rated_already.update(dict.fromkeys(Column(slice_type, *rated) for rated in rated_patterns))
                    self._add(slice_type, found, one.batches, until)
                best[slice_type] = max(best[slice_type], value)
        full = sum(many * float((pool.partitions @ best).max())
                   for many, pool in zip(self.count, self.problem.pools, strict=True))
        asked = per_rps @ self.demand_rps * (1 - MISSING) + least @ self.least
        bound = float((full + most @ self.most) * LOOSE - asked)
        if bound < self.bound and (caps_rps == self.cap_rps).all():
            self.bound, self.best = bound, duals

    def add_near(self, one: Column, until: float) -> None:
        """Until a time add patterns that hold and are like a given one."""
        for capacities in self.capacities.get(one.slice_type, []):
            self._add(one.slice_type, capacities.near(one.members), capacities.batches, until)

    def chosen(self, time_limit_s: float) -> Filled | None:
        """A whole-number solution over the patterns so far; None when none is found."""
        rows = self.rows(list(self.columns), missing=False)
        found = solve_integer(rows, np.ones(len(rows.cost), bool), time_limit_s)
        return None if found.x is None else self.filled(found.x, list(self.columns))

    def filled(self, numbers: Floats, patterns: Sequence[Column | None]) -> Filled | None:
        """GPUs and patterns of a solution; None where it takes a pattern whose operating points are unknown."""
        whole = np.rint(numbers).astype(int)
        taken = [one for one, many in zip(patterns, whole, strict=False) for _ in range(many)]
        ends = len(patterns) + np.cumsum([0, *(len(pool.partitions) for pool in self.problem.pools)])
        known = [one for one in taken if one is not None]
        return ([whole[start:end] for start, end in pairwise(ends)], known) if len(known) == len(taken) else None

    def _alone(self) -> Iterator[Column]:
        """Replicas that have a slice to themselves."""
        for at, slice_type in np.argwhere(self.single_rps > 0).tolist():
            found = self.judge.held(slice_type, (Member(at, running_alone(self.problem, at, slice_type)),), ())
            if found is not None:
                yield found

    def _add(
        self, slice_type: int, patterns: Iterable[Members], batches: Sequence[int] = (), until: float = np.inf
    ) -> bool:
        """Until a time add patterns that hold, with batches lowered if need be; returns whether all hold."""
        found = [self.judge.held(slice_type, members, batches) for members in patterns if perf_counter() < until]
        self.columns.update(dict.fromkeys(one for one in found if one is not None))
        return None not in found

    def rows(self, patterns: Sequence[Column], missing: bool) -> Rows:
        """The program over some patterns; where demand and replicas may be ``missing``, at a cost.

        Columns stand in the order: patterns, partitions, missing requests/s, missing replicas.
        """
        problem, groups = self.problem, len(self.demand_rps)
        pools, slice_types = len(self.count), len(problem.segments.slice_types)
        demand = pools + slice_types
        entries: list[tuple[int, int, float]] = []
        for column, one in enumerate(patterns):
            entries.append((pools + one.slice_type, column, -1.0))
            group = np.array([member.group for member in one.members])
            for at in set(group.tolist()):
                rps, number = np.array(one.rps)[group == at], float((group == at).sum())
                carried = np.minimum(rps, self.cap_rps[at]).sum()  # what a bound grants, replica by replica
                carried = carried if one in self.rated_already else min(carried, self.cap_rps[at])
                entries += [(demand + at, column, float(carried)),
                            (demand + groups + at, column, number), (demand + 2 * groups + at, column, -number)]
        column = len(patterns)
        for at, pool in enumerate(problem.pools):
            for row in pool.partitions:
                entries.append((at, column, -1.0))
                entries += [
                    (pools + int(slice_type), column, float(row[slice_type])) for slice_type in np.flatnonzero(row)
                ]
                column += 1
        entries += [(demand + at, column + at, 1.0) for at in range(2 * groups if missing else 0)]
        rows, columns, values = zip(*entries, strict=True)
        size = column + 2 * groups * missing
        cost = np.zeros(size)
        cost[: len(patterns)] = [-sum(one.rps) for one in patterns]
        cost[column:] = MISSED * np.concatenate([np.ones(groups), self.single_rps.max(axis=1)])[: size - column]
        matrix = coo_array((values, (rows, columns)), (demand + 3 * groups, size)).tocsc()
        right = np.concatenate([-self.count, np.zeros(slice_types), self.demand_rps, self.least, -self.most])
        return Rows(cost, matrix, right, np.zeros(size), np.full(size, np.inf))

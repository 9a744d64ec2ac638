"""The master program for max_throughput on a fixed fleet: patterns as columns, with the rates that they carry.

    maximise   requests/s of all patterns
    types      partitions of GPU type t  <=  GPUs that the fleet has
    slices     patterns on slice type k  <=  slices of that kind in the partitions
    demand     requests/s of a group's replicas  >=  the rates of its workloads
    replicas   of a group  >=  the least, and  <=  the most that its workloads may have

The rate that a replica can carry does not depend on the rates that are routed to it. So rates can be split freely, and
no grid of rates is needed. The bound is Lagrangian: for any nonnegative prices of requests/s and of replicas, no plan
carries more than the highest total value of patterns on all GPUs, less the value of the demand. The oracles bound the
value of patterns (`RateOracle.price`).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.linear.restricted import Columns, Known, RestrictedMaster
from provision.formulations.master.plans import Column, Judge, slices_of
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rate_oracles import running_alone
from provision.formulations.pricing.rates import (
    GENEROUS,
    NEAR,
    GroupPrices,
    Listing,
    Member,
    Members,
    RateOracle,
)
from provision.formulations.pricing.schedule import SCHEDULE as PRICING
from provision.formulations.search.problem import ENDLESS, Problem
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import MISSING, SETTLED
from provision.models.plans.plan import Plan

MISSED = 100.0
"""The penalty for a missing request/s while columns are generated, in requests/s.

The penalty for a missing replica is this number times the highest rate of a replica of its group.
"""
Filled = tuple[list[NDArray[np.int64]], list[Column]]
"""A solution: for each pool, (partitions,) the number of GPUs with each partition; and the patterns of all their
slices.
"""


class Limit(NamedTuple):
    """A proven bound on the throughput of every plan: a ``constant``, and for each GPU in a partition the value
    ``of_partitions`` (partitions of all pools,). ``duals`` (rows,) are the prices at which it was proven.
    """

    constant: float
    of_partitions: Floats
    duals: Floats


class FullFleet:
    """The columns for one Problem with objective max_throughput. ``bound`` is a proven upper bound in requests/s.

    Parameters
    ----------
    problem
        The Problem.
    oracles
        Pairs (slice type, oracle) of patterns of shared slices.

    Attributes
    ----------
    limits
        The bounds that were proven at different prices.
    """

    def __init__(self, problem: Problem, oracles: Sequence[tuple[int, RateOracle]]) -> None:
        self.problem, self.oracles, self.bound, self.judge = problem, oracles, np.inf, Judge(problem)
        groups = problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.demand_rps = members * [group.rate_rps for group in groups]
        self.cap_rps = np.minimum(members * [group.cap_rps for group in groups], self.demand_rps)
        # A pattern counts for no more than the whole demand. Then it implies the first replica of one workload.
        implied = (self.demand_rps > 0) & (members == 1)
        self.least = members * [group.least for group in groups]
        self.least[implied & (self.least <= 1)] = 0
        self.most = np.minimum(members * [group.most for group in groups], ENDLESS)
        self.floor_rps = np.array([group.rate_rps if group.most == 1 else 0.0 for group in groups]) * (1 - MISSING)
        self.count = np.array([pool.count or 0 for pool in problem.pools], float)
        self.single_rps = np.where(problem.single_rps >= self.floor_rps[:, None], problem.single_rps, 0.0)
        self.master = RestrictedMaster(problem, self.count, demand=self.demand_rps, at_least=self.least,
                                       at_most=-self.most)
        self.first = {name: rows.start for name, rows in self.master.rows.items()}
        self.limits: list[Limit] = []
        self.columns, self.rated_already = Known(), Known()
        for at, slice_type in np.argwhere(self.single_rps > 0).tolist():
            self.add(slice_type, (Member(at, running_alone(problem, groups[at].members[0], slice_type)),))
        lists = [(slice_type, one.listed()) for slice_type, one in oracles]
        self.listed = [(slice_type, one) for slice_type, one in lists if one is not None]

    def add_plan(self, plan: Plan) -> bool:
        """Add the patterns of a plan that keep their SLOs with all replicas busy; return whether all of them do."""
        instance, groups = self.problem.instance, self.problem.groups
        group_of = {instance.workloads[member].name: at for at, group in enumerate(groups) for member in group.members}
        return None not in [self.add(slice_type, tuple(Member(at := group_of[one.workload], Running(
            groups[at].models.index(instance.model_of(one)), one.batch, one.processes, one.sm_share, one.turn))
            for one in replicas)) for slice_type, replicas in slices_of(self.problem, plan)]

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Tighten the bound until no prices improve it or time is over; yield the bound after every round.

        The linear program also has columns for patterns whose rates are known only as upper bounds. The first bound is
        proven when no listed pattern is worth more than its slice, whatever the time.
        """
        grows = True
        while not (until.over and self.limits):
            before, (known, *others) = len(self.rated_already), self.columns_of(self.columns, whole=False)
            found = self.master.relaxed([known, *others, self.master.known(self.rated_already)])
            if found is None:
                return
            self.price(found.duals, listed=grows)
            grows = len(self.rated_already) > before
            if self.limits:
                yield self.bound
                if self.bound <= -found.value * (1 + SETTLED) or not grows:
                    return

    def price(self, duals: Floats, listed: bool = True) -> None:
        """Add patterns that are worth more than their slice costs at the dual prices (rows,) of a linear program; prove
        a bound if none is listed.

        If ``listed``, listed patterns are looked through first, which is quick. If some are worth more than their
        slice, nothing else is priced.
        """
        _, slices, per_rps, least, most = self.master.split(duals).values()
        worth = GroupPrices(1 + per_rps, least - most, self.cap_rps, self.least)
        best = worth.of(self.single_rps * GENEROUS).max(axis=0, initial=0.0)
        floor = slices * (1 + SETTLED)
        above = [(at, patterns.only(np.flatnonzero(worth.of_totals(patterns) > floor[at] * (1 + NEAR))))
                 for at, patterns in (self.listed if listed else ())]
        for at, patterns in above:
            self._add_best(at, patterns, worth)
        if any(len(patterns.rps) for _, patterns in above):
            return
        for at, one in self.oracles:
            found = one.price(worth, floor[at], 0)
            self._add_best(at, found.patterns, worth, one.together)
            best[at] = max(best[at], found.most)
        asked = per_rps @ self.demand_rps * (1 - MISSING) + least @ self.least
        values = [pool.partitions @ best * GENEROUS for pool in self.problem.pools]
        limit = Limit(float(most @ self.most * GENEROUS - asked), np.concatenate(values), duals)
        self.limits.append(limit)
        self.bound = min(self.bound, limit.constant + float(self.count @ [one.max() for one in values]))

    def seek(self, draw: np.random.Generator, until: Deadline) -> bool:
        """Add feasible patterns until a deadline, or until none are found; return whether some were added.

        Patterns are priced at the duals of the linear program over feasible patterns. If that finds no more, random
        prices around the duals are used.
        """
        before, left = len(self.columns), SCHEDULE.again
        while not until.over:
            known = len(self.columns)
            found = self.master.relaxed(self.columns_of(self.columns, whole=False))
            if found is None:
                break
            self.price(found.duals)
            if known == len(self.columns):
                if not left:
                    break
                left -= 1
                self.price(found.duals * draw.uniform(0, 2, len(found.duals)))
        return len(self.columns) > before

    def _add_best(self, slice_type: int, patterns: Listing, worth: GroupPrices, together: bool = True) -> None:
        """Add the patterns of the highest values.

        Their rates are upper bounds; patterns that the performance models find feasible are also added with the rates
        that these tell. ``together`` is that of the oracle.
        """
        for at in np.argsort(-worth.of_totals(patterns), kind="stable")[:PRICING.tried].tolist():
            one = Column(slice_type, *patterns.rated(at))
            self.rated_already.setdefault(one, (self.entries(one, together), -sum(one.rps)))
            self.add(slice_type, one.members)

    def chosen(self, time_limit_s: float) -> Filled | None:
        """A whole-number solution over the patterns so far; None if the integer program finds none in time. The program
        does not know which slices are on one GPU.
        """
        found = self.master.integral(self.columns_of(self.columns), time_limit_s)
        return None if found.x is None else self.filled(found.x)

    def filled(self, numbers: Floats) -> Filled:
        """The GPUs and patterns of a whole-number solution: values of all ``columns``, and then of all partitions."""
        many, gpus = np.split(np.rint(numbers).astype(int), [len(self.columns)])
        taken = [one for one, times in zip(self.columns, many.tolist(), strict=True) for _ in range(times)]
        return self.master.gpus(gpus), taken

    def add(self, slice_type: int, members: Members) -> Column | None:
        """Judge a pattern, and add it if it is feasible; return it, None if it is not."""
        one = self.judge.held(slice_type, members)
        if one is not None:
            self.columns.setdefault(one, (self.entries(one), -sum(one.rps)))
        return one

    def columns_of(self, known: Known, whole: bool = True) -> list[Columns]:
        """The columns of the program: those of ``known`` patterns, of partitions and, unless ``whole``, of missing
        demand.
        """
        return [self.master.known(known), self.master.partitions, *([] if whole else [self._missing])]

    def entries(self, one: Column, together: bool = True) -> list[tuple[int, float]]:
        """The entries of a pattern's column, as (row, value) pairs.

        If ``together``, the requests/s of a group's replicas are added up and cut to what one GPU may carry of the
        group, and their number to the least number. Otherwise each replica's requests/s are cut.
        """
        first, found = self.first, [(self.first["slices"] + one.slice_type, -1.0)]
        group = np.array([member.group for member in one.members])
        for at in set(group.tolist()):
            rps, number = np.array(one.rps)[group == at], float((group == at).sum())
            most_rps = float(self.cap_rps[at])
            carried = float(rps.sum() if together else np.minimum(rps, most_rps).sum())
            counted = min(number, float(self.least[at])) if together else number
            found += [(first["demand"] + at, min(carried, most_rps) if together else carried),
                      (first["at_least"] + at, counted), (first["at_most"] + at, -number)]
        return found

    @cached_property
    def _missing(self) -> Columns:
        """Columns that stand for missing requests/s and missing replicas; each has a penalty as its cost."""
        groups = len(self.demand_rps)
        one, none = np.eye(groups), np.zeros((groups, groups))
        cost = MISSED * np.concatenate([np.ones(groups), self.single_rps.max(axis=1)])
        return self.master.columns(cost, demand=np.hstack([one, none]), at_least=np.hstack([none, one]))

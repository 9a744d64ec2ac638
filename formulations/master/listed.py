"""The master program where all patterns of all slices are listed, each with the rates that its replicas carry.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of kind k in the partitions  >=  patterns on k
    demand     the part of a group's rates that patterns carry, none counted for more than all  >=  1
    replicas   of a group within its limits

Rates are split at will and need no roles. The duals of the linear program prove a bound (``type_counts``). An integer
program then looks for a plan at that price; where it has none, the bound rises to the next price.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import perf_counter

import numpy as np
from scipy.sparse import block_array, csr_array, vstack

from provision.formulations.bounds.type_counts import TypeCounts
from provision.formulations.linear.highs import IntegerSolution, Rows, solve_integer, solve_linear
from provision.formulations.master.full_plans import full_plan
from provision.formulations.master.held import Judge
from provision.formulations.pricing.listing import Listing, TooManyError, undominated
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import MISSING, SOLVER
from provision.models.plans.plan import Plan

LEAST_RPS = 1e-6
"""The rate, in requests/s, for which a workload without requests keeps a replica."""
FINE = 10**6
"""Units in which the worth of GPUs is rounded to whole numbers."""
MANY, FEW = 50, 1000
"""Columns that are added to the linear program at a time, and that are tried first in the integer program."""
MOST_PATTERNS = 2_000
"""More patterns of a slice type than these are too many for one integer program."""


class ListedProgram:
    """The program of one Problem and its patterns; ``proof`` holds the bound.

    Columns stand in the order: patterns, partitions, tiers.

    Parameters
    ----------
    problem
        The Problem.
    listings
        All patterns, by slice type.
    """

    def __init__(self, problem: Problem, listings: Sequence[tuple[int, Listing]]) -> None:
        self.problem, self.listings, self.judge = problem, listings, Judge(problem)
        self.proof = TypeCounts(problem.pools, problem.most_gpus)
        self.tiers = [(at, price, count) for at, pool in enumerate(problem.pools)
                      for price, count in pool.offered]
        self.limited = np.flatnonzero([math.isfinite(group.most) for group in problem.groups])
        sizes = [len(one.rps) for _, one in listings]
        self.first = np.cumsum([0, *sizes])
        self.slice_type = np.repeat([slice_type for slice_type, _ in listings], sizes)
        asked = np.array([max(group.rate_rps, LEAST_RPS) * len(group.members) for group in problem.groups])
        self.part = np.minimum(np.concatenate([one.rps for _, one in listings]) / asked, 1)
        self.number = np.concatenate([one.number for _, one in listings])[:, self.limited]
        self.most = np.array([problem.groups[at].most * len(problem.groups[at].members) for at in self.limited])
        self.value, self.reduced = 0.0, np.zeros(len(self.slice_type))

    def plans(self, until: float, method: str) -> Iterator[Plan | None]:
        """Raise the bound to the next possible cost, yielding None each time, until a plan costs no more or time is up.

        The last one yielded is that plan, or None where the search for it ended without an answer.
        """
        converged = self._prove(until)
        yield None
        while converged and perf_counter() < until and math.isfinite(self.proof.bound):
            plan, none = self._sought(until, method)
            if not none:
                yield plan
                return
            self.proof.above(self.proof.bound)
            yield None

    def _prove(self, until: float) -> bool:
        """The bound that duals of the linear program prove; returns whether no column is missing from it."""
        taken = np.unique(self.part.argmax(axis=0))
        while perf_counter() < until:
            found = solve_linear(self._rows(taken, 1.0, limited=False))
            if found is None:
                return False
            pools, slice_types = len(self.problem.pools), len(self.problem.segments.slice_types)
            _, slices, demand, number = np.split(found.duals, np.cumsum([pools, slice_types, self.part.shape[1]]))
            worth = self.part @ demand - self.number @ number
            self.value, self.reduced = found.value, slices[self.slice_type] - worth
            best = np.zeros(slice_types)
            np.maximum.at(best, self.slice_type, worth)
            most = [float((pool.partitions @ best).max()) for pool in self.problem.pools]
            asked = float(demand.sum() * (1 - MISSING) - number @ self.most)
            self.proof.add(math.floor(asked * FINE) - 1, [math.ceil(one * FINE) + 1 for one in most])
            new = np.flatnonzero(self.reduced < -SOLVER)
            if not len(new):
                return True
            taken = np.union1d(taken, new[np.argsort(self.reduced[new], kind="stable")[:MANY]])
        return False

    def _sought(self, until: float, method: str) -> tuple[Plan | None, bool]:
        """A plan that costs no more than the bound, None when none is found, and whether it is proven that none does.

        No pattern of such a plan has a reduced cost above what the bound exceeds the linear program by. Those of the
        least reduced cost are tried first on their own.
        """
        gap = self.proof.bound / self.problem.dearest - self.value * (1 - SOLVER) + SOLVER
        useful = np.flatnonzero(self.reduced <= gap)
        if not len(useful):
            return None, True
        useful = useful[np.argsort(self.reduced[useful], kind="stable")]
        for tried in (useful[:FEW], useful) if len(useful) > FEW else (useful,):
            try:
                kept = self._undominated(tried)
            except TooManyError:
                return None, False
            found = self._within(kept, 1 - SOLVER, until)
            if found.x is not None:
                plan = self._plan(kept, found.x, method)
                again = self._within(kept, 1 + SOLVER, until).x if plan is None else None
                return plan if again is None else self._plan(kept, again, method), False
        return None, found.status == "infeasible"

    def _undominated(self, patterns: Ints) -> Ints:
        """The patterns left over when each that another one on the same slice type replaces is dropped."""
        found = []
        for slice_type in np.unique(self.slice_type[patterns]):
            here = patterns[self.slice_type[patterns] == slice_type]
            found.append(here[undominated(np.column_stack([self.part[here], -self.number[here]]), MOST_PATTERNS)])
        return np.concatenate(found)

    def _within(self, patterns: Ints, part: float, until: float) -> IntegerSolution:
        """A solution that carries this part of all rates and costs no more than the bound."""
        rows = self._rows(patterns, part, limited=True)
        most = self.proof.bound / self.problem.dearest * (1 + MISSING)
        rows = rows._replace(matrix=csr_array(vstack([rows.matrix, csr_array(-rows.cost[None])])),
                             right=np.append(rows.right, -most))
        return solve_integer(rows, np.ones(len(rows.cost), bool), until - perf_counter())

    def _rows(self, patterns: Ints, part: float, limited: bool) -> Rows:
        """The program over some patterns, for a part of the demand; tiers ``limited`` to their counts, or endless."""
        problem = self.problem
        slice_types, pools = len(problem.segments.slice_types), np.arange(len(problem.pools))[:, None]
        of_type = np.repeat(pools, [len(pool.partitions) for pool in problem.pools])
        of_tier = np.array([at for at, *_ in self.tiers])
        offered = np.concatenate([pool.partitions for pool in problem.pools])
        matrix = csr_array(
            block_array(
                [
                    [None, csr_array(-1.0 * (pools == of_type)), csr_array(1.0 * (pools == of_tier))],
                    [
                        csr_array(-1.0 * (np.arange(slice_types)[:, None] == self.slice_type[patterns])),
                        csr_array(1.0 * offered.T),
                        None,
                    ],
                    [csr_array(np.vstack([self.part[patterns].T, -self.number[patterns].T])), None, None],
                ]
            )
        )
        before = len(patterns) + len(offered)
        cost = np.append(np.zeros(before), [price / problem.dearest for _, price, _ in self.tiers])
        right = np.concatenate([np.zeros(len(pools) + slice_types), np.full(self.part.shape[1], part), -self.most])
        most = np.full(len(cost), np.inf)
        if limited:
            most[before:] = [np.inf if count is None else count for *_, count in self.tiers]
        return Rows(cost, matrix, right, np.zeros(len(cost)), most)

    def _plan(self, patterns: Ints, x: Floats, method: str) -> Plan | None:
        """The plan of a solution; None where its patterns do not hold exactly or some rate is missed."""
        numbers = np.rint(x).astype(int)
        taken = np.repeat(patterns, numbers[: len(patterns)])
        of_listing = np.searchsorted(self.first, taken, side="right") - 1
        columns = []
        for one, at in zip(of_listing.tolist(), taken.tolist(), strict=True):
            slice_type, listing = self.listings[one]
            columns.append(self.judge.held(slice_type, listing.rated(at - int(self.first[one])).members, ()))
        ends = len(patterns) + np.cumsum([0, *(len(pool.partitions) for pool in self.problem.pools)])
        held = [one for one in columns if one is not None]
        return full_plan(self.problem, [numbers[start:end] for start, end in pairwise(ends)], held, method
                         ) if len(held) == len(columns) else None

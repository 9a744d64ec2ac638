"""Who is served where GPUs or money are short: the program of most throughput, with workloads left out or cut.

The rows and columns of ``FullFleet`` stay. Further columns, each (groups,), say what is not served:

    left out   a workload is not served at all: the demand and the least replicas of its group are missing
    cut        requests/s that are missing from the demand, at most (1 - floor) of it
    paid       GPUs of each fleet entry, at most its count; their prices are at most the budget

Levels of priority are served one after the other. Each level misses the least weighted requests/s that the levels
above leave possible: a row per level above says that it misses no more than was found for it.

The bound: at any prices, ``FullFleet`` bounds what GPUs in partitions carry beyond the demand (``Limit``). A plan that
misses something carries no more than this bound and the price of what it misses. So every choice of prices is a row of
a program over the numbers of GPUs in each partition and over what is missing (Benders decomposition); its value is a
proven bound.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from provision.formulations.linear.highs import IntegerSolution, Rows, solve_integer
from provision.formulations.linear.restricted import Columns
from provision.formulations.master.fullest import Filled, FullFleet, Limit
from provision.formulations.master.plans import rated_plan
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.search.problem import Problem, groups_of
from provision.models.base.arrays import Bools, Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import MISSING, SETTLED, SOLVER, TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

NAME = "ration"


class Level(NamedTuple):
    """The weighted requests/s of one priority that are asked for and served; no plan serves more than ``bound`` without
    serving the levels above less. None if nothing is proven.
    """

    priority: int
    asked: float
    served: float
    bound: float | None

    @property
    def proven(self) -> bool:
        """Whether the bound proves that no plan serves more."""
        return self.bound is not None and self.bound <= self.served + SOLVER * max(self.asked, 1.0)


class Served(NamedTuple):
    """``shares`` (workloads,) are the served parts of the workloads' rates. ``levels`` begin with the highest.
    ``plan`` serves these shares; it is None if the patterns found make no plan.
    """

    shares: Floats
    levels: tuple[Level, ...]
    plan: Plan | None


class Rationing:
    """The program of one instance with objective max_throughput, on which every workload can be served by some slice.

    Parameters
    ----------
    instance
        The instance.
    budget
        The most that GPUs may cost per hour, beyond those that are committed; None for no limit.
    seed
        Seed of the random prices at which further patterns are sought.
    """

    def __init__(self, instance: Instance, budget: float | None = None, seed: int = 0) -> None:
        groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
        self.problem = Problem(instance, sorted(groups, key=lambda group: group.members))
        self.fleet = FullFleet(self.problem, rates_of(self.problem))
        self.draw = np.random.default_rng(seed)
        self.master, self.demand_rps = self.fleet.master, self.fleet.demand_rps
        self.weight = np.array([one.weight for one in instance.workloads]) / instance.policy.planned_rps(1.0)
        self.floor = np.array([floor_of(one.floor, one.max_replicas, one.max_share_per_gpu)
                               for one in instance.workloads])
        one, most_cut = np.eye(len(self.weight)), (1 - self.floor) * self.demand_rps
        none = np.zeros(len(self.weight))
        self.out = self.master.columns(none, none + 1, demand=one * self.demand_rps, at_least=one * self.fleet.least)
        self.cut = self.master.columns(none, most_cut, whole=False, demand=one)
        self.paid = self._paid(instance)
        self.price = np.array([0.0 if entry.committed else entry.price_per_hour or 0.0 for entry in instance.fleet])
        self.budget = budget

    @property
    def bounds(self) -> bool:
        """Whether bounds are valid. They are not where replicas slow with the traffic of their neighbours, since the
        program lets all replicas be busy.
        """
        policy = self.problem.instance.policy
        return not policy.share_slices or policy.rule.random_arrivals

    def levels(self, until: Deadline) -> Served:
        """Serve level after level until a deadline."""
        workloads = self.problem.instance.workloads
        above, found, shares = list[tuple[Floats, float]](), list[Level](), np.zeros(len(workloads))
        plan: Plan | None = None
        priorities = sorted({one.priority for one in workloads}, reverse=True)
        for left, priority in zip(range(len(priorities), 0, -1), priorities, strict=True):
            of_level = np.array([one.priority == priority for one in workloads])
            weight = np.where(of_level, self.weight, 0.0)
            whole = float(weight @ self.demand_rps)
            missed = (0.0, 0.0)
            if whole > 0:
                best = self._least_missed(weight, above, Deadline(until.left_s / left))
                if best is not None:
                    shares, plan, missed = best
                else:
                    missed = (whole, 0.0)
                above.append((weight, missed[0] + SETTLED * whole))
            bound = whole - missed[1] if self.bounds else None
            found.append(Level(priority, whole, whole - missed[0], bound))
        return Served(shares, tuple(found), plan)

    def _least_missed(self, weight: Floats, above: Sequence[tuple[Floats, float]], until: Deadline
                      ) -> tuple[Floats, Plan | None, tuple[float, float]] | None:
        """The shares and the plan that miss least weighted requests/s, how much they miss, and a bound on it; None if
        no solution was found.
        """
        whole, bound = float(weight @ self.demand_rps), 0.0
        best: tuple[Floats, Plan | None, float] | None = None
        for turn in range(1 + SCHEDULE.again):
            if turn:
                enough = bound if best is None else best[2] - SOLVER * whole
                bound = max(bound, self._bound(weight, above, until, enough))
                if turn > 1 and not self.fleet.seek(self.draw, until):
                    break
            found, lower = self._chosen(weight, above, until)
            bound = bound if self.fleet.oracles else max(bound, lower)
            if found is not None:
                shares, filled = found
                missed = float(weight @ (self.demand_rps * (1 - shares)))
                if best is None or missed < best[2]:
                    best = shares, self._plan(shares, filled), missed
            if not self.fleet.oracles or until.over or (best and best[2] <= bound + SOLVER * whole):
                break
        return None if best is None else (best[0], best[1], (best[2], min(bound, best[2])))

    def _chosen(self, weight: Floats, above: Sequence[tuple[Floats, float]], until: Deadline
                ) -> tuple[tuple[Floats, Filled] | None, float]:
        """The shares and GPUs of the best solution over the patterns so far, None if there is none, and the solver's
        bound on what they miss.
        """
        known, partitions = self.fleet.columns_of(self.fleet.columns)
        patterns = known._replace(cost=np.zeros(len(known.cost)))
        right = self.master.sides(types=np.zeros(len(self.problem.pools)), demand=self.demand_rps * (1 - MISSING))
        found = self._solved([patterns, partitions], slice(None), right, weight, above, until)
        if found.x is None:
            return None, found.bound
        many, of_partitions, out, cut, _ = np.split(found.x, np.cumsum(
            [len(patterns.cost), len(partitions.cost), len(weight), len(weight)]))
        filled = self.fleet.filled(np.concatenate([many, of_partitions]))
        return (self._shares(np.rint(out) > 0, cut, filled), filled), found.bound

    def _shares(self, out: Bools, cut: Floats, filled: Filled) -> Floats:
        """The shares of a solution: no more than its replicas carry, since the solver errs."""
        carried, asked = np.zeros(len(cut)), np.where(self.demand_rps > 0, self.demand_rps, 1.0)
        for pattern in filled[1]:
            np.add.at(carried, [member.group for member in pattern.members], pattern.rps)
        share = np.where(self.demand_rps > 0, np.minimum(1 - cut / asked, carried / asked * (1 - TOLERANCE)), 1.0)
        return np.where(out, 0.0, np.where(share > 1 - SOLVER, 1.0, np.maximum(share, self.floor)))

    def _bound(self, weight: Floats, above: Sequence[tuple[Floats, float]], until: Deadline, enough: float) -> float:
        """Return a lower bound on the missed requests/s, weighted by ``weight`` (workloads,). It rises until it is
        ``enough``, pricing helps no more, or time is over.
        """
        bound, [partitions] = 0.0, [self.master.partitions]
        types, groups = self.master.rows["types"], len(weight)
        while not until.over:
            found = self._solved([partitions], types, np.zeros(len(self.problem.pools)), weight, above, until, True)
            bound = max(bound, found.bound - SOLVER * float(weight @ self.demand_rps))
            if found.x is None or bound >= enough > 0:
                break
            numbers, out, cut, _ = np.split(found.x, np.cumsum([len(partitions.cost), groups, groups]))
            right = self.master.sides(demand=np.maximum(self.demand_rps * (1 - out) - cut, 0),
                                      at_least=self.fleet.least * (1 - out))
            many = np.rint(numbers)
            known, fixed, missing = self.fleet.columns_of(self.fleet.columns, whole=False)
            rated = self.master.known(self.fleet.rated_already)
            solved = self.master.relaxed([known, fixed._replace(least=many, most=many), missing, rated], right)
            if solved is None:
                break
            before = len(self.fleet.rated_already), len(self.fleet.columns)
            self.fleet.price(solved.duals)
            lacking = solved.x[-len(rated.cost) - len(missing.cost):][: len(missing.cost)]
            if float(lacking.sum()) <= SETTLED * float(self.demand_rps.sum()):
                break
            if before == (len(self.fleet.rated_already), len(self.fleet.columns)) and all(
                    self._allows(limit, many, out, cut) for limit in self.fleet.limits):
                break
        return bound

    def _allows(self, limit: Limit, numbers: Floats, out: Floats, cut: Floats) -> bool:
        """Whether a limit allows a solution of the program of bounds, so that solving it again changes nothing."""
        row, right = self._limit(limit)
        paid = np.zeros(len(self.price))
        return float(row @ np.concatenate([numbers, out, cut, paid])) >= right - SETTLED * abs(right)

    def _limit(self, limit: Limit) -> tuple[Floats, float]:
        """A Limit as a row over partitions, workloads left out, cuts, and paid GPUs, and its right side: what is served
        is at most the limit, and the price of what is missing.
        """
        prices = self.master.split(limit.duals)
        per_rps, least = prices["demand"], prices["at_least"]
        row = np.concatenate([limit.of_partitions, (1 + per_rps) * self.demand_rps + least * self.fleet.least,
                              1 + per_rps, np.zeros(len(self.price))])
        right = float(self.demand_rps.sum()) * (1 - MISSING) - limit.constant
        scale = max(float(np.abs(row).max()), abs(right), 1e-9)
        return row / scale, right / scale - SETTLED

    def _solved(self, first: list[Columns], rows: slice, right: Floats, weight: Floats,
                above: Sequence[tuple[Floats, float]], until: Deadline, limits: bool = False) -> IntegerSolution:
        """The integer program over columns and over what is left out, cut and paid, with some rows of the master, those
        of the budget and of levels above and, if asked, of all limits. Its bound is in weighted requests/s.
        """
        sorts = [*first, self.out, self.cut, self.paid]
        program = self.master.program(sorts, self.master.right)
        before, whole = sum(len(one.cost) for one in first), max(float(weight @ self.demand_rps), SOLVER)
        tidy = SETTLED / max(1.0, float(self.fleet.count.sum()))
        zeros, free = np.zeros(before), np.zeros(len(self.price))
        cost = np.concatenate([zeros, weight * self.demand_rps / whole, weight / whole, free + tidy])
        further, sides = list[Floats](), list[float]()
        if self.budget is not None:
            further.append(np.concatenate([zeros, np.zeros(2 * len(weight)), -self.price]))
            sides.append(-self.budget)
        for one, missed in above:
            scale = max(float(one @ self.demand_rps), SOLVER)
            further.append(np.concatenate([zeros, -one * self.demand_rps / scale, -one / scale, free]))
            sides.append(-missed / scale)
        for row, side in map(self._limit, self.fleet.limits if limits else ()):
            further.append(row)
            sides.append(side)
        matrix = csr_array(program.matrix)[rows]
        if further:
            matrix = vstack([matrix, csr_array(np.array(further))])
        integral = np.repeat([one.whole for one in sorts], [len(one.cost) for one in sorts])
        found = solve_integer(
            Rows(cost, csc_array(matrix), np.concatenate([right, sides]), program.least, program.most), integral,
            min(SCHEDULE.whole_s, until.left_s))
        return found._replace(bound=max(0.0, (found.bound - SETTLED) * whole))

    def _paid(self, instance: Instance) -> Columns:
        """A column for every fleet entry: its GPUs that are used."""
        pool_of = {(pool.gpu, pool.mig): at for at, pool in enumerate(self.problem.pools)}
        pays = np.zeros((len(pool_of), len(instance.fleet)))
        for at, entry in enumerate(instance.fleet):
            if (entry.gpu, entry.partitioned) in pool_of:
                pays[pool_of[entry.gpu, entry.partitioned], at] = 1
        most = np.array([float(entry.count or 0) for entry in instance.fleet])
        return self.master.columns(np.zeros(len(most)), most, types=pays)

    def _plan(self, shares: Floats, filled: Filled) -> Plan | None:
        """The plan of a solution, for the instance with the shares of the rates; None if it breaks limits per GPU."""
        served = with_shares(self.problem.instance, shares)
        groups = [group._replace(rate_rps=group.rate_rps * share, least=group.least if share > 0 else 0)
                  for group, share in zip(self.problem.groups, shares.tolist(), strict=True)]
        plan = rated_plan(Problem(served, groups), *filled, NAME)
        return None if plan is None else _without(plan, {one.name for one, share in zip(
            served.workloads, shares.tolist(), strict=True) if share == 0})


def floor_of(floor: float, max_replicas: int | None, share: float) -> float:
    """The least fraction of its rate that a workload is served unless it is left out. One that has a single replica or
    a limit per GPU is served as a whole or not at all.
    """
    return 1.0 if max_replicas == 1 or share < 1 else floor


def with_shares(instance: Instance, shares: Floats) -> Instance:
    """The instance with these shares of its rates; workloads that are left out need no replicas."""
    return instance.replace(workloads=[
        one.model_copy(update={"rate_rps": one.rate_rps * share} | ({} if share > 0 else {"min_replicas": 0}))
        for one, share in zip(instance.workloads, shares.tolist(), strict=True)])


def _without(plan: Plan, names: set[str]) -> Plan:
    """The plan without the replicas of some workloads, and without what is then empty."""
    gpus = []
    for gpu in plan.gpus:
        slices = [piece.model_copy(update={"replicas": kept}) for piece in gpu.slices
                  if (kept := tuple(one for one in piece.replicas if one.workload not in names))]
        if slices:
            gpus.append(gpu.model_copy(update={"slices": tuple(slices)}))
    return plan.model_copy(update={"gpus": tuple(gpus)})

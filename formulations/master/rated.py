"""Plans and bounds from patterns that carry rates: every workload has a row for its rate, and no grid of rates is
needed.

1. Small patterns are listed.
2. The linear program is solved. With its duals, the oracles bound the value of all patterns, which proves a bound
   (``type_counts``).
3. The linear program is solved again with the numbers of GPUs that the bound allows. Pricing at its duals raises the
   bound, until these GPUs suffice in the linear program.
4. Local search (``exchange``) looks for plans at the bound: with one pattern on each slice, it exchanges two patterns
   at a time.
5. If all patterns are listed, an integer program finds the plan at the bound. If it proves that there is none, the
   bound rises to the next possible price.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.master.columns import RateColumns, Relaxed
from provision.formulations.master.exchange import drawn_slots, exchanged
from provision.formulations.master.plans import Judge, rated_plan
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import MOST_NAMED, GroupPrices, RateOracle, TooManyError
from provision.formulations.search.problem import Problem
from provision.formulations.search.type_counts import TypeCounts
from provision.models.base.arrays import Ints
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.tolerances import SOLVER
from provision.models.plans.plan import Plan
from provision.models.problem.search import Search


def named(problem: Problem) -> Problem:
    """The Problem with one group for each workload, if there are at most MOST_NAMED workloads; else the Problem itself.
    """
    groups = tuple(group._replace(members=(one,)) for group in problem.groups for one in group.members)
    return Problem(problem.instance, groups) if len(problem.groups) < len(groups) <= MOST_NAMED else problem


def rated_oracles(problem: Problem, until: Deadline = NEVER) -> list[tuple[int, RateOracle]] | None:
    """Pairs (slice type, oracle) if slices are shared; else None."""
    return rates_of(problem, until) if problem.shareable else None


class RatedSearch:
    """The search on one Problem. ``proof`` holds the proven bound.

    Parameters
    ----------
    problem
        The Problem.
    oracles
        Pairs (slice type, oracle) for all slice types.
    search
        The Search, with clock and seed.
    method
        The name to write into plans.
    """

    def __init__(self, problem: Problem, oracles: Sequence[tuple[int, RateOracle]], search: Search, method: str
                 ) -> None:
        self.problem, self.oracles, self.search, self.method = problem, oracles, search, method
        self.master, self.judge = RateColumns(problem), Judge(problem)
        self.draw = np.random.default_rng(search.seed)
        self.proof = TypeCounts(problem.pools, problem.most_gpus)
        self.proof.at_least(problem.spread_over)
        self.complete, self.effort = all(one.complete for _, one in oracles), 0
        self.coarse = any(one.coarse for _, one in oracles)
        self.hardest = max((one.hardest for _, one in oracles), default=0)
        self.took_s, self.endless = 0.0, np.full(len(problem.groups), math.inf)
        self.best = math.inf
        self.below: Relaxed | None = None
        for slice_type, one in oracles:
            self.master.add(slice_type, one.listed())

    @property
    def bound(self) -> float:
        """The proven bound, in units of price."""
        return self.proof.bound

    @property
    def ended(self) -> bool:
        """Whether the best plan costs no more than the bound, no plan is possible, or time is up."""
        return self.best <= self.bound or math.isinf(self.bound) or self.search.left_s <= 0

    def plans(self, best: float = math.inf) -> Iterator[Plan | None]:
        """Yield after each step the plan at the bound that was found, else None. ``best`` is the price of the best plan
        known, in units.

        The search ends when the best plan is proven optimal, at the time limit, or after many steps in vain.
        """
        self.best = best
        self.prove()
        yield None
        if self.complete:
            yield from self._closed()
            return
        yield self._exchanged()
        idle = 0
        while not self.ended and self.below is not None and idle < SCHEDULE.idle:
            before, rises = self.bound, self._raised() and not self.effort
            yield self._exchanged() if self.bound > before or not rises else None
            idle += not rises

    def prove(self) -> None:
        """Prove a bound by pricing at the linear program's duals. Add patterns until further ones would lower the
        program's value by no more than the fraction ``SCHEDULE.used``.
        """
        while self.search.left_s > 0:
            found = self.master.relaxed()
            if found is None:
                return
            self.below = found
            if self._priced(found, self._spare(found)) >= found.value * (1 - SCHEDULE.used):
                return

    def _spare(self, found: Relaxed) -> float:
        """The fraction by which patterns may exceed the prices of slices without being added. Once the bound is rounded
        up to a price that GPUs can have, these patterns would not change it.
        """
        units = found.value * self.problem.dearest
        if units <= 0:  # free GPUs suffice
            return SCHEDULE.slight
        lower = max(self.proof.below(units * (1 - SOLVER)), units * SCHEDULE.used)
        return max(SCHEDULE.slight, units / lower * (1 - SCHEDULE.used) - 1)

    def _priced(self, at: Relaxed, spare: float = SCHEDULE.slight) -> float:
        """A lower bound on the value of the linear program over all patterns; infinite if no pattern was added.

        On the way, prove a bound on plans at the prices of a solution, and add the patterns whose value exceeds the
        price of their slice by more than the fraction ``spare``.
        """
        master, best, before = self.master, self.master.best(at), len(self.master.slice_type)
        for slice_type, oracle in self.oracles:
            if not oracle.complete:
                floor = max(at.slices[slice_type] * (1 + spare), best[slice_type])
                prices = GroupPrices(at.per_rps, at.bonus, self.endless, self.endless)
                found = oracle.price(prices, floor, self.effort)
                best[slice_type] = max(best[slice_type], found.most)
                better = np.flatnonzero(master.worth(at, found.patterns, oracle.together) > floor)
                master.add(slice_type, found.patterns.only(better), oracle.together)
        full = [float((pool.partitions @ best).max()) for pool in self.problem.pools]
        self.proof.add_prices(at.asked, full)
        over = max(one * self.problem.dearest / pool.worth
                   for one, pool in zip(full, self.problem.pools, strict=True))
        return math.inf if len(master.slice_type) == before or over <= 0 else at.asked / over

    def _raised(self) -> bool:
        """Solve the linear program with some GPUs free of charge: as many of each type as the bound allows. Price at
        its duals, which may raise the bound. Return whether a further call may raise it more.

        If the linear program needs further GPUs but pricing was not exhaustive, the next call uses more effort, if
        there is time.
        """
        before, counts, left_s = self.bound, self.proof.counts, self.search.left_s
        if counts is None or self.effort > self.hardest or self.took_s * SCHEDULE.patience > left_s:
            return False
        found = self.master.relaxed(counts)
        if found is None or found.value <= SOLVER:
            return False
        missing, self.took_s = math.isfinite(self._priced(found)), left_s - self.search.left_s
        if missing or self.bound > before or self.proof.counts != counts:
            return True
        self.effort, self.took_s = self.effort + 1, self.took_s * SCHEDULE.longer
        return self.effort <= self.hardest

    def _exchanged(self) -> Plan | None:
        """A plan at the bound by local search; None if none is found. Rates of a grid are for bounds only, so they give
        no plan.
        """
        counts, most = self.proof.counts, self.bound / self.problem.dearest
        if self.ended or counts is None or self.coarse:
            return None
        until = self.search.within(SCHEDULE.exchange_s)
        for _ in range(SCHEDULE.again):
            found = self.master.relaxed()
            if found is None:
                return None
            partitions, slots = drawn_slots(self.master, found, counts, most - found.value, self.draw)
            patterns = self.master.useful(found, most)
            patterns = patterns[self.master.fits[patterns]][: SCHEDULE.exchanged]
            slots = slots[np.isin(slots, self.master.slice_type[patterns])]
            chosen = exchanged(self.master, found, patterns, slots, self.draw, until) if len(slots) else None
            plan = None if chosen is None else self._made(partitions, chosen)
            if chosen is None or plan is not None:
                return plan
        return None

    def _plan(self, patterns: Ints, most: float) -> tuple[Plan | None, bool]:
        """The plan of an integer program that costs at most ``most``, in multiples of the dearest GPU's price, and
        whether the program has no solution.

        The plan is None if none is found in time, or its patterns are infeasible or carry too little.
        """
        for part in (1 - SOLVER, 1 + SOLVER):
            found = self.master.integral(patterns, part, most, self.search.left_s)
            if found.x is None:
                return None, part < 1 and found.status == "infeasible"
            plan = self._made(*self.master.chosen(patterns, found.x))
            if plan is not None:
                return plan, False
        return None, False

    def _made(self, partitions: list[Ints], taken: Ints) -> Plan | None:
        """The plan of GPUs with some partitions and patterns; None if a pattern is infeasible or the replicas carry too
        little.
        """
        columns = [(at, self.judge.held(int(self.master.slice_type[at]), self.master.rated(at).members))
                   for at in taken.tolist()]
        unfit = [at for at, one in columns if one is None]
        self.master.fits[unfit] = False
        plan = None if unfit else rated_plan(self.problem, partitions, [one for _, one in columns if one is not None],
                                            self.method)
        if plan is not None:
            self.best = min(self.best, self.problem.cost(partitions))
        return plan

    def _closed(self) -> Iterator[Plan | None]:
        """As long as no plan is as cheap as the bound, raise the bound to the next possible price. Yields None after
        each rise, and the plan at the end. All patterns must be listed.
        """
        while not self.ended and self.below is not None:
            plan, none = self._at_bound(self.below)
            if not none:
                yield plan
                return
            self.proof.above(self.bound)
            yield None

    def _at_bound(self, found: Relaxed) -> tuple[Plan | None, bool]:
        """A plan that costs no more than the bound (None if none is found), and whether it is proven that there is
        none.

        The patterns of least reduced cost are tried first, then all that such a plan may use.
        """
        most = self.bound / self.problem.dearest
        useful = self.master.useful(found, most)
        for tried in [useful[: SCHEDULE.short], useful] if len(useful) > SCHEDULE.short else [useful]:
            if not len(tried):
                break
            try:
                kept = self.master.undominated(tried)
            except TooManyError:
                return None, False
            plan, none = self._plan(kept, most)
            if not none:
                return plan, False
        return None, True

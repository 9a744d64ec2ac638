"""Keeps a limit on the power of a plan's GPUs, whatever method plans.

Where all GPUs draw the same, the limit is a number of GPUs. In other fleets watts get a price (Lagrange): a plan of
least cost plus price times watts is sought, at prices that rise until a plan keeps the limit and then are bisected. The
least sum, less the price times the limit, bounds the cost of every plan within the limit. What that leaves open is
closed by planning for each number of the GPUs that draw most, with as many others as then are allowed, if these cases
are few. Most throughput is planned by such cases alone, each a fixed fleet; if they are many, for some of them, and the
bound is that of all GPUs.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from provision.models.base.objects import known
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.models.problem.workload import FleetEntry

Run = Callable[[Instance, Search], Outcome]
ROUNDS, GROWS = 6, 4.0
"""The number of prices of watts that are tried, and the factor by which the price rises until a plan keeps the limit.
"""
PRICES, MOST_CASES, MOST_FLEETS = 0.5, 24, 10_000
"""The fraction of the time for prices of watts, and the most numbers of GPUs that are planned for one by one, and that
are listed to choose from.
"""
REASON = "the GPUs that power.limit_w allows carry less; raise it, or allow GPUs that draw less"


def keeping_power(run: Run, instance: Instance, search: Search) -> Outcome:
    """The outcome of ``run`` on an instance, within its limit of power, which it must have."""
    if len({_full_w(instance, one) for one in instance.fleet}) > 1 or instance.objective == THROUGHPUT:
        return _Prices(run, instance, search).outcome()
    outcome = run(_counted(instance, _most(instance)), search)
    told = f"{outcome.reason}; {REASON}" if outcome.status == "infeasible" else outcome.reason
    return replace(outcome, plan=outcome.plan and instance.adopted(outcome.plan), reason=told)


def _full_w(instance: Instance, entry: FleetEntry) -> float:
    return known(instance.power).of(entry.gpu).full_w


Kind = tuple[str, bool]
"""A GPU type, and whether its GPUs run with MIG."""
Counts = dict[Kind, int]
"""Numbers of GPUs by their kind."""


def _most(instance: Instance) -> Counts:
    """How many GPUs of each type the limit and the fleet allow."""
    limit_w, counts = known(known(instance.power).limit_w) * (1 + TOLERANCE), Counter[Kind]()
    for one in instance.fleet:
        kind, most = (one.gpu, one.partitioned), math.floor(limit_w / _full_w(instance, one))
        counts[kind] = min(counts[kind] + (most if one.count is None else one.count), most)
    return counts


def _counted(instance: Instance, most: Counts, price: float = 0.0) -> Instance:
    """The instance without power and with at most so many GPUs of each type, the cheapest entries first. GPUs are
    priced by their weight in the objective, and by a price per watt.
    """
    weight, left = objective_of(instance).weight, dict(most)
    used = instance.objective == THROUGHPUT
    fleet: dict[tuple[str, bool, float], FleetEntry] = {}
    for one in sorted(instance.fleet, key=weight):
        kind = one.gpu, one.partitioned
        count = left[kind] if one.count is None else min(one.count, left[kind])
        left[kind] -= count
        per_hour = one.price_per_hour or 1.0 if used else weight(one) + price * _full_w(instance, one)
        before = fleet.get((*kind, per_hour))
        fleet[*kind, per_hour] = one.model_copy(update={
            "count": count + (known(before.count) if before else 0), "committed": False, "price_per_hour": per_hour})
    return instance.replace(fleet=[*fleet.values()], power=None, objective=THROUGHPUT if used else "min_cost")


class _Prices:
    """The search over prices of watts: the best plan within the limit, and the best bound."""

    def __init__(self, run: Run, instance: Instance, search: Search) -> None:
        self.run, self.instance, self.search = run, instance, search
        self.limit_w = known(known(instance.power).limit_w)
        self.draws = {(one.gpu, one.partitioned): _full_w(instance, one) for one in instance.fleet}
        self.most = _most(instance)
        self.progress = Progress(instance, replace(search, start=search.start if self._allows(search.start) else None))

    def _allows(self, plan: Plan | None) -> bool:
        """Whether there is a plan and it keeps the limit."""
        drawn_w = math.inf if plan is None else math.fsum(
            known(self.instance.power).of(gpu.gpu).full_w for gpu in plan.gpus)
        return drawn_w <= self.limit_w * (1 + TOLERANCE)

    def outcome(self) -> Outcome:
        """Try prices until the plan is proven best or the time is over."""
        if self.instance.objective == THROUGHPUT:
            return self._most_throughput()
        progress, weight = self.progress, objective_of(self.instance).weight
        weights = [weight(one) / _full_w(self.instance, one) for one in self.instance.fleet]
        low, high, price = 0.0, math.inf, 0.0
        for left in range(ROUNDS, 0, -1):
            outcome = self._tried(price, PRICES * self.search.left_s / (left if price else 1))
            if outcome.status == "infeasible" and price == 0:
                return replace(outcome, reason=f"{outcome.reason}; {REASON}")
            keeps = self._allows(outcome.plan)
            if (keeps and price == 0) or progress.proved or not self.search.left_s:
                break
            low, high = (low, price) if keeps else (price, high)
            price = (low + high) / 2 if high < math.inf else GROWS * price or max(weights)
        if not progress.proved and self._case_by_case() == math.inf and progress.plan is None:
            return Outcome("infeasible", "proved", reason=REASON)
        ended: Termination = "completed" if progress.plan is not None and self.search.left_s else "time_limit"
        return progress.outcome(ended, "no plan within power.limit_w was found")

    def _most_throughput(self) -> Outcome:
        """Plan fixed fleets within the limit to which no GPU can be added."""
        cases = self._listed(MOST_FLEETS)
        fullest = [one for one in cases if all(
            many == self.most[kind] or self.draws[kind] > self._room_w(one) for kind, many in one.items())]
        several = fullest[:: 1 + len(fullest) // MOST_CASES]
        partial = len(cases) > MOST_FLEETS or len(several) < len(fullest)
        bound = self._planned(several, partial)
        if partial:
            bound = self.run(self.instance.replace(power=None), self.search.apart()).bound
        if bound == -math.inf:
            return Outcome("infeasible", "proved", reason=REASON)
        self.progress.prove(bound)
        return self.progress.outcome("completed" if self.search.left_s else "time_limit", REASON)

    def _case_by_case(self) -> float | None:
        """Plan for each number of the GPUs that draw most; returns the bound, None if cases are many or one has none.
        """
        cases = self._listed(MOST_CASES)
        bound = self._planned(cases) if len(cases) <= MOST_CASES else None
        self.progress.prove(None if bound == math.inf else bound)
        return bound

    def _planned(self, cases: list[Counts], kept: bool = False) -> float | None:
        """Plan for numbers of GPUs, with time ``kept`` for one more case; returns the bound on all of them: None if one
        has none, infinite (of most throughput -infinite) if none can be planned.
        """
        bounds, sense = list[float | None](), objective_of(self.instance).sense
        for left, counts in zip(range(len(cases) + kept, kept, -1), cases, strict=True):
            outcome = self.run(_counted(self.instance, counts), self.search.apart(self.search.left_s / left))
            self._keep(outcome.plan)
            bounds.append(sense * math.inf if outcome.status == "infeasible" else outcome.bound)
        known_bounds = [sense * one for one in bounds if one is not None]
        return sense * min(known_bounds) if known_bounds and None not in bounds else None

    def _cases(self, counts: Counts, kinds: Sequence[Kind]) -> Iterator[Counts]:
        """Yield numbers of GPUs that together are all within the limit: some ``counts``, and for further kinds every
        number that is possible, the highest first; of the last kind, as many as the limit leaves.
        """
        kind, *rest = kinds
        most = min(self.most[kind], int(self._room_w(counts) // self.draws[kind]))
        if not rest:
            yield counts | {kind: most}
        for many in range(most, -1, -1) if rest else ():
            yield from self._cases(counts | {kind: many}, rest)

    def _listed(self, most: int) -> list[Counts]:
        """The first cases: ``most``, and one more if there are more. The kind that draws least comes last."""
        kinds = sorted(self.draws, key=lambda kind: -self.draws[kind])
        return list(islice(self._cases({}, kinds), most + 1))

    def _room_w(self, counts: Counts) -> float:
        """The watts of the limit that numbers of GPUs leave."""
        return self.limit_w * (1 + TOLERANCE) - sum(self.draws[kind] * many for kind, many in counts.items())

    def _tried(self, price: float, seconds: float) -> Outcome:
        """The outcome at a price per watt; better plans and bounds are kept."""
        priced = _counted(self.instance, self.most, price)
        outcome = self.run(priced, self.search.apart(seconds))
        if outcome.bound is not None:
            self.progress.prove(outcome.bound - price * self.limit_w)
        self._keep(outcome.plan)
        return outcome

    def _keep(self, plan: Plan | None) -> None:
        """Keep a plan within the limit if it is the best so far."""
        if plan is not None and self._allows(plan):
            self.progress.offer(self.instance.adopted(plan))

"""The search for a purchase: a restricted master over all periods whose pricing problem is an ordinary ``solve`` of one
period with other prices. The plan of such a solve is a column, and its proven bound is a cut.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np

from provision.buying.known import CLOSE, Cut, Floor, Known
from provision.buying.market import Group, Market, rounded
from provision.buying.programs import Choice, Duals, Programs
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.plans.plan import Plan, carried_rps
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.objective import committed_per_hour, least_per_hour
from provision.sweeps.run import solved
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

LEAST_S = 0.5
"""The least time limit of a solve."""
PROGRAM_PART = 0.08
"""The part of the time for each whole-number program over all periods."""
SOLVE_GAP = 0.25
"""The part of the gap at which the solve of one period may end."""
SAME = 1e-6
"""The relative distance within which two values of linear programs count as equal."""
BATCH = 6
"""A sixth of the groups gets new plans before prices are computed anew."""
MANY = 8
"""From this number of groups on, one plan for the highest rates of all is made first, so that all have one."""


class Found(NamedTuple):
    """The outcome of a search: optimal, feasible, infeasible or unknown; the best purchase and a bound on the cost of
    all; ``short`` is the group whose demand nothing can serve (None if there is none).
    """

    status: str
    groups: list[Group]
    choice: Choice | None
    bound: float
    short: int | None = None


class Searching:
    """Searches on one market that share what they know.

    Parameters
    ----------
    market
        The Market.
    gap
        A search may end at this relative gap.
    seed
        The seed of all solves.
    tell
        Called with the cost and the bound whenever they are computed.
    """

    def __init__(self, market: Market, gap: float, seed: int,
                 tell: Callable[[float | None, float], None] = lambda cost, bound: None) -> None:
        self.market, self.gap, self.seed, self.tell = market, gap, seed, tell
        self.known, self.solves = Known(market), 0
        self._tried: set[tuple[bytes, ...]] = set()

    def run(self, time_limit_s: float, factor: float = 1.0) -> Found:
        """Search for the best purchase for all rates times a factor."""
        deadline, groups = Deadline(time_limit_s), self.market.groups(factor)
        programs, found = Programs(self.market, groups, self.known), Found("unknown", groups, None, self.market.sunk)
        try:
            short = self._begin(groups, deadline)
            if short is not None:
                return found._replace(status="infeasible", short=short)
            kept_s = PROGRAM_PART * time_limit_s
            while True:
                more = self._priced(programs, deadline, kept_s)
                found, several = self._judged(programs, found, kept_s)
                beside = any([self._beside(groups, one, deadline, 2 * kept_s) for one in several])
                if not (beside or more) or deadline.left_s < 2 * kept_s > 0:
                    return found if not beside else self._judged(programs, found, deadline.left_s / 2)[0]
        except KeyboardInterrupt:
            return found

    def without_spot(self, found: Found, time_limit_s: float) -> tuple[Choice | None, float]:
        """The best known purchase without spot GPUs and a bound on every such purchase, for the groups of a search."""
        programs = Programs(self.market, found.groups, self.known, spot=False)
        return programs.best(time_limit_s / 2, self.gap), programs.bound(time_limit_s / 2)[0]

    def _judged(self, programs: Programs, before: Found, limit_s: float) -> tuple[Found, list[Floats]]:
        """The best purchase and bound so far; and, unless they meet, the committed GPUs (groups, types) of the purchase
        and of what would cost the bound.
        """
        bound, wanted = programs.bound(limit_s, gap=self.gap / 4)
        bound, choice = max(bound, before.bound), programs.best(limit_s, self.gap / 2)
        if choice is None or (before.choice and before.choice.cost <= choice.cost):
            choice = before.choice
        self.tell(choice.cost if choice else None, bound)
        apart = choice.cost - bound if choice else inf
        status = "unknown" if choice is None else "optimal" if apart <= SAME * choice.cost else "feasible"
        found = Found(status, before.groups, choice, bound)
        if choice is not None and apart <= max(self.gap, SAME) * choice.cost:
            return found, []
        bought = [] if choice is None else [programs.committed(choice.reserved)]
        return found, bought + ([] if wanted is None else [wanted])

    def _begin(self, groups: list[Group], deadline: Deadline) -> int | None:
        """Make sure that every group has a plan; returns the first group in time whose demand nothing can serve."""
        caps, usual = self.market.caps, self._usual()
        if len(groups) > MANY:
            self._solve(np.max([group.rates for group in groups], axis=0), usual, deadline.left_s / 10)
        impossible = False
        for at in sorted(range(len(groups)), key=lambda at: -groups[at].rates.sum()):
            left = sum(not self.known.serving(group.rates) for group in groups)
            if not self.known.serving(groups[at].rates) and not deadline.over:
                self._solve(groups[at].rates, usual, deadline.left_s / (left + 1))
                impossible |= self.known.suffices(groups[at].rates, caps) is False
        if not impossible:
            return None
        for at, group in enumerate(groups):  # in time, so that the first day is told
            if self.known.suffices(group.rates, caps) is None:
                self._solve(group.rates, usual, max(deadline.left_s / 4, LEAST_S))
            if self.known.suffices(group.rates, caps) is False:
                return at
        raise AssertionError("a group is infeasible")

    def _usual(self) -> Floats:
        found = rounded(self.market.usual)
        return np.ones(len(self.market.types)) if found is None else found

    def _priced(self, programs: Programs, deadline: Deadline, kept_s: float) -> bool:
        """Solve periods at the prices of the inner program until its value meets that of the outer one; returns whether
        anything is new. ``kept_s`` seconds are left for the whole-number programs.
        """
        new = False
        while deadline.left_s > 2 * kept_s:
            duals = programs.relaxed()
            if duals is None or duals.value - programs.bound(0.0, whole=False)[0] <= self.gap / 4 * duals.value + SAME:
                return new
            batch = max(1, len(programs.groups) // BATCH)
            if not any([self._improved(programs.groups, duals, (deadline.left_s - kept_s) / 2 / batch)
                        for _ in range(batch) if deadline.left_s > 2 * kept_s]):
                return new
            new = True
        return new

    def _improved(self, groups: list[Group], duals: Duals, limit_s: float) -> bool:
        """Solve the period whose plans and bounds lie furthest apart at some prices; returns whether there was one."""
        shares, with_spot = self.market.shares, bool(self.market.spot)
        apart: list[tuple[float, int]] = []
        for at, group in enumerate(groups):
            total, spot = duals.worth[at] - duals.spot[at], duals.spot[at]
            least = self.known.least(group.rates, total)
            if with_spot:
                least += self.known.least(group.rates * (1 - shares), spot, firm=True)
            known = [self.known.columns[one] for one in self.known.serving(group.rates)]
            cost = min((duals.worth[at] @ one.gpus - spot @ one.spot for one in known), default=inf)
            if cost - least > SAME * max(cost, 1e-12):
                apart.append((cost - least, at))
        for _, at in sorted(apart, reverse=True):
            rates, total, spot = groups[at].rates, duals.worth[at] - duals.spot[at], duals.spot[at]
            prices, firm = rounded(np.maximum(total, 0)), rounded(np.maximum(spot, 0)) if with_spot else None
            did = False
            if prices is not None and self._new(b"total", rates, prices):
                self._solve(rates, prices, limit_s)
                did = True
            if firm is not None and self._new(b"firm", rates, firm):
                self._composed(rates, firm, limit_s)
                did = True
            if did:
                return True
        return False

    def _new(self, what: bytes, *arrays: Floats) -> bool:
        """Whether this is to be solved for the first time."""
        key = what, *(one.tobytes() for one in arrays)
        new = key not in self._tried
        self._tried.add(key)
        return new

    def _beside(self, groups: list[Group], committed: Floats, deadline: Deadline, kept_s: float) -> bool:
        """Solve all periods beside GPUs (groups, types) that are committed, at the prices of all others; returns
        whether that is new of some period. ``kept_s`` seconds are left for the whole-number programs.
        """
        did = False
        for at, (group, gpus) in enumerate(zip(groups, committed, strict=True)):
            limit_s = (deadline.left_s - kept_s) / (len(groups) - at)
            if limit_s > 0 and self._new(b"beside", group.rates, gpus):
                instance = self.market.beside(group.rates, gpus)
                found = self._solved(instance, limit_s)
                least = least_per_hour(instance, _proven(found)) - committed_per_hour(instance)
                if least > CLOSE:
                    self.known.floors.append(Floor(group.rates, gpus, least))
                if found.plan is not None:
                    self.known.add(group.rates, found.plan)
                did = True
        return did

    def _solved(self, instance: Instance, limit_s: float) -> Result:
        self.solves += 1
        settings = {"method": "auto", "time_limit_s": max(limit_s, LEAST_S), "seed": self.seed}
        return solved(instance, settings, gap=SOLVE_GAP * self.gap, slack="no")

    def _solve(self, rates: Floats, prices: Floats, limit_s: float, firm: bool = False) -> Plan | None:
        """Solve one period; what comes of it is known from then on. Returns the plan of a firm part."""
        found = self._solved(self.market.priced(rates, prices, self.market.caps, firm), limit_s)
        (self.known.firm if firm else self.known.total).append(Cut(rates, prices, _proven(found)))
        if found.plan is not None and not firm:
            self.known.add(rates, found.plan)
        return found.plan

    def _composed(self, rates: Floats, prices: Floats, limit_s: float) -> None:
        """Solve the part of a period that firm GPUs must carry, let them carry what more they can, and put the rest on
        spot GPUs; both together are a plan.
        """
        market, offered = self.market, np.zeros(len(self.market.types))
        for offer in market.spot:
            offered[offer.type] = max(offered[offer.type], offer.most)
        firm = self._solve(rates * (1 - market.shares), prices, limit_s, firm=True)
        if firm is None:
            return
        firm = _filled(market.priced(rates, prices, np.full(len(prices), inf), firm=True), firm)
        carried, whole = carried_rps(firm.gpus), market.at(rates)
        rest_rates = np.array([max(rate - carried[one.name] * rate / max(whole.planned_rps(one), CLOSE), 0.0)
                               for one, rate in zip(whole.workloads, rates, strict=True)])
        part = market.priced(rest_rates, np.array([min((one.price for one in market.spot if one.type == at),
                                                       default=1.0) for at in range(len(prices))]), offered, firm=True)
        rest = self._solved(part, limit_s).plan
        if rest is None:
            return
        both = market.instance.plan_of("buy", (*firm.gpus, *rest.gpus))
        if verify(market.priced(rates, prices, np.full(len(prices), inf)), both).ok:
            self.known.add(rates, both, tuple(range(len(firm.gpus), len(both.gpus))))


def _proven(found: Result) -> float:
    """The bound of a solve: 0 if it has none, infinite if nothing can be planned."""
    return inf if found.status == "infeasible" else found.bound or 0.0


def _filled(instance: Instance, plan: Plan) -> Plan:
    """A plan of a part of the demand with as much of the whole demand as its replicas can carry."""
    can: defaultdict[tuple[int, int, str], float] = defaultdict(float)
    for one in verify(instance, plan).predictions:
        can[one.gpu, one.slice, one.workload] += capacity_rps(instance, plan, [one])[one.workload]
    most: defaultdict[str, float] = defaultdict(float)
    for (_, _, name), rate in can.items():
        most[name] += rate
    part = {one.name: min(1.0, instance.planned_rps(one) / most[one.name]) if most[one.name] else 0.0
            for one in instance.workloads}
    carry = {key: rate * part[key[2]] for key, rate in can.items()}
    gpus = [gpu.model_copy(update={"slices": tuple(
        piece.model_copy(update={"replicas": tuple(
            one.model_copy(update={"rate_rps": carry[at, position, one.workload] / count[one.workload]})
            for one in piece.replicas)})
        for position, piece in enumerate(gpu.slices)
        for count in [Counter(one.workload for one in piece.replicas)])})
        for at, gpu in enumerate(plan.gpus)]
    found = instance.plan_of(plan.method, gpus)
    broken = {one.kind for one in verify(instance, found).violations}
    return found if broken <= {"rate"} else plan  # a part serves less than the whole rate


def served(market: Market, plan: Plan, rates: Floats) -> Plan:
    """A plan with its rates brought to those of a period."""
    carried, instance = carried_rps(plan.gpus), market.at(rates)
    factor = {one.name: instance.planned_rps(one) / carried[one.name] if carried[one.name] else 1.0
              for one in instance.workloads}
    return plan.with_rates(factor)

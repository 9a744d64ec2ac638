"""The cheapest replica set that carries a rate, at whole-number prices of roles: a covering knapsack.

A dynamic program fills a table: the highest rate that replicas carry, at every total price and number of replicas. The
price of the cheapest replica set is the first price at which the table reaches the rate. All workloads of a class share
one table. If a rate needs very many replicas, the role with the least price per request/s carries the bulk of it, and
the table is used for the rest.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.schedule import SCHEDULE
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST

SAME, START = -1, -2
"""Entries of the table that are no role. SAME: a lower price carries as much. START: no replica is taken yet."""


class CheapestSet(NamedTuple):
    """A replica set: its price ``cost``, and ``counts`` (roles,), the number of replicas of each role.

    ``bound`` is a lower bound on the price of every replica set.
    """

    cost: int
    bound: int
    counts: NDArray[np.int64]


class Knapsack:
    """Finds the cheapest replica sets of one workload class.

    Parameters
    ----------
    credit_rps
        (roles,) the requests/s that a replica of each role carries; above 0.
    costs
        (roles,) the whole-number price of each role; at least 0.
    counted
        The largest number of replicas that the table distinguishes.
    exact
        Whether a replica set may have at most ``counted`` replicas. If not, the number is not limited.
    """

    def __init__(self, credit_rps: NDArray[np.float64], costs: NDArray[np.int64], counted: int, exact: bool) -> None:
        self.credit_rps, self.costs, self.counted, self.exact = credit_rps, costs, counted, exact
        self.carried, self.chosen = np.zeros((counted + 1, 0)), np.zeros((counted + 1, 0), np.int64)

    def cheapest(self, rate_rps: float, least: int) -> CheapestSet | None:
        """The cheapest replica set of at least ``least`` replicas that carries a rate; None if there is none."""
        if not len(self.costs):
            return None
        rate_rps *= 1 - DUST
        if self.exact:
            return self._counted(rate_rps, least)
        if (self.costs == 0).any():
            free = int(np.where(self.costs == 0, self.credit_rps, 0).argmax())
            return self._alike(free, rate_rps, least)
        best = int((self.costs / self.credit_rps).argmin())
        bulk = max(0, math.floor((self._reach(rate_rps, least) - SCHEDULE.longest) / self.costs[best]))
        rest_rps = max(0.0, rate_rps - bulk * self.credit_rps[best])
        reach = self._reach(rest_rps, least)
        self._fill(reach)
        cost = int(np.searchsorted(self.carried[-1, : reach + 1], rest_rps))
        counts = self._trace(cost, self.counted)
        counts[best] += bulk
        exact = cost + bulk * int(self.costs[best])
        bound = exact if not bulk else math.floor(rate_rps * float((self.costs / self.credit_rps).min()) * (1 - 1e-12))
        return CheapestSet(exact, bound, counts)

    def _counted(self, rate_rps: float, least: int) -> CheapestSet | None:
        """The cheapest replica set that has at least ``least`` and at most ``counted`` replicas; None if there is none.
        """
        if least > self.counted or self.credit_rps.max() * self.counted < rate_rps:
            return None
        number = np.maximum(np.ceil(rate_rps / self.credit_rps), least)
        reach = int((number * self.costs)[number <= self.counted].min())
        self._fill(reach)
        rows = self.carried[least:, : reach + 1]
        first = [int(np.searchsorted(row, rate_rps)) for row in rows]
        best = int(np.argmin(first))
        return CheapestSet(first[best], first[best], self._trace(first[best], best + least))

    def _alike(self, role: int, rate_rps: float, least: int) -> CheapestSet:
        """The replica set that carries a rate with replicas of one given role only."""
        counts = np.zeros(len(self.costs), np.int64)
        counts[role] = max(math.ceil(rate_rps / self.credit_rps[role]), least)
        cost = int(counts[role] * self.costs[role])
        return CheapestSet(cost, cost, counts)

    def _reach(self, rate_rps: float, least: int) -> int:
        """The price of the cheapest replica set whose replicas all have the same role."""
        number = np.maximum(np.ceil(rate_rps / self.credit_rps), least)
        return int((number * self.costs).min())

    def _fill(self, reach: int) -> None:
        """Make the table for prices up to ``reach``, or up to twice its former size, so that later rates find it ready.
        """
        if reach >= self.carried.shape[1]:
            size = max(reach + 1, 2 * self.carried.shape[1])
            self.carried, self.chosen = _table(self.credit_rps, self.costs, size, self.counted, self.exact)

    def _trace(self, price: int, number: int) -> NDArray[np.int64]:
        """(roles,) the number of replicas of each role behind an entry of the table."""
        counts = np.zeros(len(self.costs), np.int64)
        while (role := int(self.chosen[number, price])) != START:
            if role == SAME:
                price -= 1
                continue
            stays, role = role >= len(self.costs), role % len(self.costs)
            counts[role] += 1
            price -= int(self.costs[role])
            number -= not stays
        return counts


@compiled
def _table(
    credit_rps: NDArray[np.float64], costs: NDArray[np.int64], size: int, counted: int, exact: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(replicas, prices) the highest rate that is carried, and the role that was taken last.

    Row j stands for j replicas. Unless ``exact``, the last row also stands for more replicas: there an entry r +
    ``len(costs)`` means that role r was added to a set of the last row itself.
    """
    carried, chosen = np.full((counted + 1, size), -np.inf), np.full((counted + 1, size), START)
    carried[0, 0] = 0.0
    for price in range(size):
        for number in range(counted + 1):
            if price > 0:
                carried[number, price] = carried[number, price - 1]
                chosen[number, price] = SAME if carried[number, price] >= 0 else START
            for role in range(len(costs)):
                before = price - costs[role]
                if before < 0:
                    continue
                if number > 0 and carried[number - 1, before] + credit_rps[role] > carried[number, price]:
                    carried[number, price] = carried[number - 1, before] + credit_rps[role]
                    chosen[number, price] = role
                if exact or number < counted:
                    continue
                if carried[number, before] + credit_rps[role] > carried[number, price]:
                    carried[number, price] = carried[number, before] + credit_rps[role]
                    chosen[number, price] = role + len(costs)
    return carried, chosen

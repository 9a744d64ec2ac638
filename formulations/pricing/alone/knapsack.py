"""The cheapest replica set of a rate by roles at whole-number prices: a covering knapsack.

A dynamic program fills a table with the highest rate that replicas carry at every total price and number of replicas;
the cheapest replica set of a rate has the first price at which the table reaches the rate. Workloads of a class share
the table. Of a rate that needs very many replicas, all but a rest is carried by the role with the least price per
request/s.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST

LONGEST = 200_000
"""Most prices of a table."""
SAME, START = -1, -2
"""Table entries that are not a role: SAME, a lower price carries as much; START, no replica is taken yet."""


class CheapestSet(NamedTuple):
    """A replica set: its price, a lower bound on the price of any replica set, and (roles,) how many replicas take each
    role.
    """

    cost: int
    bound: int
    counts: NDArray[np.int64]


class Knapsack:
    """Cheapest replica sets of one class.

    Parameters
    ----------
    credit_rps
        (roles,) requests/s that a replica of each role carries, above 0.
    costs
        (roles,) whole-number prices, at least 0.
    counted
        The largest number of replicas that the table distinguishes.
    exact
        Whether a replica set has at most ``counted`` replicas; otherwise the number is not limited.
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
        bulk = max(0, math.floor((self._reach(rate_rps, least) - LONGEST) / self.costs[best]))
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
        """The cheapest replica set of at most ``counted`` replicas."""
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
        """The replica set of a rate in which all replicas have the given role."""
        counts = np.zeros(len(self.costs), np.int64)
        counts[role] = max(math.ceil(rate_rps / self.credit_rps[role]), least)
        cost = int(counts[role] * self.costs[role])
        return CheapestSet(cost, cost, counts)

    def _reach(self, rate_rps: float, least: int) -> int:
        """The price of the cheapest replica set whose replicas all have one role."""
        number = np.maximum(np.ceil(rate_rps / self.credit_rps), least)
        return int((number * self.costs).min())

    def _fill(self, reach: int) -> None:
        """Make the table for prices up to ``reach``, and somewhat further for later rates."""
        if reach >= self.carried.shape[1]:
            size = max(reach + 1, 2 * self.carried.shape[1])
            self.carried, self.chosen = _table(self.credit_rps, self.costs, size, self.counted, self.exact)

    def _trace(self, price: int, number: int) -> NDArray[np.int64]:
        """Counts of roles behind an entry of the table."""
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
    """(replicas, prices) the highest rate that is carried, and the role taken last.

    Row j is for j replicas; unless ``exact``, the last row also stands for more replicas. An entry r + ``len(costs)``
    means role r, taken from the last row itself.
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

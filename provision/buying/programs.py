"""The two programs over all periods. Both choose reservations, and on-demand and spot GPUs per group of periods.

The inner one chooses among known plans, so that its value is a cost that can be had. The outer one knows only what is
proven of each period's needs, so that its value is a bound on every purchase. Prices for new plans are the duals of
the inner one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, hstack, vstack

from provision.buying.known import Known
from provision.buying.market import Group, Market
from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.models.base.arrays import Floats


class Choice(NamedTuple):
    """A purchase: its cost, that of owned GPUs included, GPUs per term (terms,), on demand (groups, offers) and spot
    (groups, offers), the column of every group.
    """

    cost: float
    reserved: Floats
    on_demand: Floats
    spot: Floats
    columns: list[int]


class Duals(NamedTuple):
    """The optimum of the inner linear program: its value, the worth of one more GPU (groups, types), the worth of one
    more GPU that may be spot (groups, types), and the cost of every group's columns (groups,).
    """

    value: float
    worth: Floats
    spot: Floats
    group: Floats


class Programs:
    """The programs of a market over some groups; without ``spot`` no spot GPUs are bought."""

    def __init__(self, market: Market, groups: list[Group], known: Known, spot: bool = True) -> None:
        self.market, self.groups, self.known = market, groups, known
        offers = [*market.on_demand, *(market.spot if spot else [])]
        self.with_spot = spot and bool(market.spot)
        terms, many, types = len(market.terms), len(offers), len(market.types)
        self.shape = terms, len(groups), many
        hours = np.array([group.hours for group in groups])
        self.cost = np.concatenate([[one.cost for one in market.terms],
                                    np.outer(hours, [one.price for one in offers]).ravel()])
        self.most = np.concatenate([[self._most(one.entry) for one in market.terms],
                                    np.tile([one.most for one in offers], len(groups))])
        firm: list[tuple[int, int]] = []
        extra: list[tuple[int, int]] = []
        for at, group in enumerate(groups):
            firm += [(at * types + one.type, column) for column, one in enumerate(market.terms)
                     if one.first <= group.periods[0] <= one.last]
            for column, one in enumerate(offers):
                side = firm if column < len(market.on_demand) else extra
                side.append((at * types + one.type, terms + at * many + column))
        shape = len(groups) * types, len(self.cost)
        self.firm, self.extra = _ones(firm, shape), _ones(extra, shape)
        self.own = np.tile(market.own, len(groups))
        limited = np.isfinite(np.tile(market.quota, len(groups)))
        self.limits = -(self.firm + self.extra)[limited], (self.own - np.tile(market.quota, len(groups)))[limited]
        bound, sides = self._at_most()
        self.limits = vstack([self.limits[0], bound]), np.concatenate([self.limits[1], sides])

    def _most(self, entry: int) -> float:
        stated = self.market.buying.reserve[entry].at_most
        return inf if stated is None else float(stated)

    def _at_most(self) -> tuple[csr_array, Floats]:
        """Rows that bound the reservations of an entry that run at the same time."""
        entries: list[tuple[int, int]] = []
        sides: list[float] = []
        for entry in range(len(self.market.buying.reserve)):
            for group in self.groups if self._most(entry) < inf else ():
                entries += [(len(sides), at) for at, one in enumerate(self.market.terms)
                            if one.entry == entry and one.first <= group.periods[0] <= one.last]
                sides.append(-self._most(entry))
        return -_ones(entries, (len(sides), len(self.cost))), np.array(sides, float)

    def _inner(self) -> tuple[Rows, list[tuple[int, int]]]:
        """The inner program, and the (group, column) of every further variable."""
        types, pairs = len(self.market.types), [
            (at, column) for at, group in enumerate(self.groups) for column in self.known.serving(group.rates)]
        gpus = np.zeros((len(self.own), len(pairs)))
        spot = np.zeros((len(self.own), len(pairs)))
        chosen = np.zeros((len(self.groups), len(pairs)))
        for at, (group, column) in enumerate(pairs):
            rows = slice(group * types, (group + 1) * types)
            gpus[rows, at], spot[rows, at] = self.known.columns[column].gpus, self.known.columns[column].spot
            chosen[group, at] = 1
        blocks = [hstack([self.firm + self.extra, csr_array(-gpus)]), hstack([-self.extra, csr_array(spot)]),
                  hstack([csr_array((len(self.groups), len(self.cost))), csr_array(chosen)]),
                  hstack([self.limits[0], csr_array((len(self.limits[1]), len(pairs)))])]
        right = np.concatenate([-self.own, np.zeros(len(self.own)), np.ones(len(self.groups)), self.limits[1]])
        cost = np.concatenate([self.cost, np.zeros(len(pairs))])
        most = np.concatenate([self.most, np.full(len(pairs), inf)])
        return Rows(cost, vstack(blocks, "csr"), right, np.zeros(len(cost)), most), pairs

    def relaxed(self) -> Duals | None:
        """The inner linear program; None if the known plans do not suffice."""
        rows, _ = self._inner()
        found = solve_linear(rows)
        if found is None:
            return None
        shape, many = (len(self.groups), len(self.market.types)), len(self.own)
        return Duals(found.value + self.market.sunk, found.duals[:many].reshape(shape),
                     found.duals[many:2 * many].reshape(shape),
                     found.duals[2 * many:2 * many + len(self.groups)])

    def best(self, time_limit_s: float, gap: float) -> Choice | None:
        """The cheapest purchase with known plans that is found within the time; None if there is none."""
        rows, pairs = self._inner()
        whole = np.arange(len(rows.cost)) >= len(self.cost)
        whole[: self.shape[0]] = True
        found = solve_integer(rows, whole, time_limit_s, gap).x
        if found is None:
            return None
        terms, groups, many = self.shape
        bought = np.rint(found[: len(self.cost)])
        hourly = bought[terms:].reshape(groups, many)
        firm = len(self.market.on_demand)
        columns = {group: column for (group, column), value in zip(pairs, found[len(self.cost):], strict=True)
                   if value > 0.5}
        return Choice(float(self.cost @ bought) + self.market.sunk, bought[:terms], hourly[:, :firm], hourly[:, firm:],
                      [columns[group] for group in range(groups)])

    def bound(self, time_limit_s: float, whole: bool = True, gap: float = 0.0) -> tuple[float, Floats | None]:
        """A proven bound on the cost of every purchase, and the committed GPUs (groups, types) of the outer program's
        best answer (None if it found none). Without ``whole`` it is the linear program's, which is quick.
        """
        rows = self._outer(whole)
        if not whole:
            relaxed = solve_linear(rows)
            return (-inf, None) if relaxed is None else (relaxed.value + self.market.sunk, None)
        found = solve_integer(rows, np.ones(len(rows.cost), bool), time_limit_s, gap)
        if found.x is None:
            return (inf if found.status == "infeasible" else found.bound + self.market.sunk), None
        return found.bound + self.market.sunk, self.committed(np.rint(found.x))

    def committed(self, reserved: Floats) -> Floats:
        """(groups, types) the GPUs that are owned or reserved, by GPUs per term, the first entries of ``reserved``."""
        terms = self.shape[0]
        return (self.firm[:, :terms] @ reserved[:terms] + self.own).reshape(len(self.groups), -1)

    def _outer(self, whole: bool) -> Rows:
        types, total = len(self.market.types), csr_array(self.firm + self.extra)
        matrix, right, further = [self.limits[0]], [self.limits[1]], list[tuple[int, Floats, float]]()
        for at, group in enumerate(self.groups):
            rows = slice(at * types, (at + 1) * types)
            kinds = [(total, self.known.cuts(group.rates))]
            if self.with_spot:
                kinds.append((self.firm, self.known.cuts(group.rates * (1 - self.market.shares), firm=True)))
            for capacity, known in kinds:
                cuts = [one for one in known if whole or one.least < inf]
                if cuts:
                    prices = np.array([one.prices for one in cuts])
                    matrix.append(csr_array(prices) @ capacity[rows])
                    right.append(np.array([one.least for one in cuts]) - prices @ self.market.own)
            further += [(at, one.committed, one.least) for one in (self.known.floors_of(group.rates) if whole else ())]
        stacked, count = vstack(matrix, "csr"), types * len(further)
        blocks: list[csr_array] = [hstack([stacked, csr_array((stacked.shape[0], count))], "csr")]
        side = list[Floats]()
        terms, _, many = self.shape
        for number, (at, gpus, least) in enumerate(further):  # of one type there are more, or the others cost the least
            more = np.zeros((types + 1, count))
            more[:types, number * types:(number + 1) * types] = -np.diag(gpus + 1)
            more[types, number * types:(number + 1) * types] = 1
            gained, paid = total[at * types:(at + 1) * types].toarray(), np.zeros((1, len(self.cost)))
            if least < inf:
                gained[:, terms:] = 0
                hourly = slice(terms + at * many, terms + (at + 1) * many)
                paid[0, hourly] = self.cost[hourly] / self.groups[at].hours / least
            blocks.append(csr_array(np.hstack([np.vstack([gained, paid]), more])))
            side.append(np.append(-self.market.own, 1.0))
        cost, most = np.append(self.cost, np.zeros(count)), np.append(self.most, np.ones(count))
        return Rows(cost, vstack(blocks, "csr"), np.concatenate([*right, *side]), np.zeros(len(cost)), most)


def _ones(entries: Sequence[tuple[int, int]], shape: tuple[int, int]) -> csr_array:
    """A matrix with ones at these places."""
    rows, columns = zip(*entries, strict=True) if entries else ((), ())
    return coo_array((np.ones(len(entries)), (np.array(rows, int), np.array(columns, int))), shape).tocsr()

"""Classes of similar workloads, and the price of a replica as a function of the rate that it can carry (and of its
SLO), given at nodes.

The workloads of a class have the same models and traffic, one replica or any number, and SLOs close to each other. If
all of them get the longest SLO, the result is a relaxation; with the shortest SLO, it is a restriction.

The nodes of a *kind*, the workloads of the same models and traffic, are some SLOs and some rates (levels). Between
nodes the function is linear. If each workload of a kind has one replica, its function is a step function instead, with
steps at the workloads' rates: a replica that cannot carry a whole rate is worth no more than one that carries the next
lower rate. A bound may use any such function that does not fall with the rate, and the linear program of the bound has
one row for each node.

The least value of a replica set that carries a rate follows from these prices. Of two replicas between levels, one can
give rate to the other without raising the total value, until one of them is at a level. So some cheapest replica set
has at most one replica between levels. A table holds the least value of sets of replicas at levels, for their total
rate in whole steps. Rates of levels are rounded up, so that the result is at most the true least value.
"""

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.offers import RISE, PlaceValues, place_values, value_at
from provision.formulations.search.problem import Group
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST, FORGIVEN
from provision.models.problem.instance import Instance


class Parts(NamedTuple):
    """Rows of nodes and their weights, both (entries, 4): a value is the weighted sum of the nodes' values."""

    rows: Ints
    weights: Floats


class ValueNodes:
    """The nodes of all kinds.

    Parameters
    ----------
    kind
        (classes,) the number of the kind of each class.
    slo_ms
        (classes,) their longest SLOs.
    levels
        (kinds, levels) requests/s, ascending from 0.
    steps
        (kinds,) whether the function is a step function.
    slos
        The most SLOs that are nodes of a kind.

    Attributes
    ----------
    lower, above
        (classes,) the number of the node SLO at or below each class, and the weight of the next one. A node SLO has one
        row per level; node SLOs are numbered through all kinds.
    of_node
        (node SLOs,) the kind of each node SLO.
    """

    def __init__(self, kind: Ints, slo_ms: Floats, levels: Floats, steps: Bools, slos: int) -> None:
        self.kind, self.levels, self.steps = kind, levels, steps
        self.lower, self.above, self.of_node = np.zeros(len(kind), int), np.zeros(len(kind)), list[int]()
        for one in range(len(levels)):
            of_kind = np.flatnonzero(kind == one)
            distinct = np.unique(slo_ms[of_kind])
            picked = np.linspace(0, len(distinct) - 1, min(slos, len(distinct))).round().astype(int)
            chosen = distinct[picked]
            at = np.clip(np.searchsorted(chosen, slo_ms[of_kind], "right") - 1, 0, max(len(chosen) - 2, 0))
            self.lower[of_kind] = len(self.of_node) + at
            if len(chosen) > 1:
                logs = np.log(chosen)
                self.above[of_kind] = (np.log(slo_ms[of_kind]) - logs[at]) / (logs[at + 1] - logs[at])
            self.of_node += [one] * len(chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of node SLOs of all kinds, and of levels."""
        return len(self.of_node), self.levels.shape[1]

    def parts(self, of_class: Ints, rps: Floats) -> Parts:
        """The Parts of the values of places, by the class of each place and the requests/s that it carries, both
        (places,).
        """
        lower, above = self.lower[of_class], self.above[of_class]
        levels = self.levels[self.kind[of_class]]
        rps = np.minimum(rps, levels[:, -1])
        below = (levels <= rps[:, None] * (1 + FORGIVEN)).sum(axis=1) - 1
        at, row = np.clip(below, 0, levels.shape[1] - 2), np.arange(len(below))
        over = np.clip((rps - levels[row, at]) / (levels[row, at + 1] - levels[row, at]), 0.0, 1.0)
        over = np.where(self.steps[self.kind[of_class]], below - at, over)
        low, width = lower * levels.shape[1] + at, np.where(above > 0, levels.shape[1], 0)
        return Parts(np.stack([low, low + 1, low + width, low + 1 + width], axis=1),
                     np.stack([(1 - above) * (1 - over), (1 - above) * over, above * (1 - over), above * over], axis=1))

    def table(self, values: Floats) -> Floats:
        """(node SLOs, levels) values that rise with the rate from 0, given the nodes' values (rows,)."""
        found = np.maximum.accumulate(np.maximum(values, 0.0).reshape(self.shape), axis=1)
        found[:, 0] = 0.0
        return found

    def taken_over(self, before: "ValueNodes", values: Floats) -> Floats:
        """(rows,) the function with ``values`` at the nodes ``before``, of the same SLOs, read at these nodes."""
        return np.concatenate([np.interp(self.levels[kind], before.levels[kind], row)
                               for kind, row in zip(self.of_node, before.table(values), strict=True)])

    def linear(self, values: Floats) -> PlaceValues:
        """The values of places of all classes, linear between all levels, given the nodes' values (rows,)."""
        table = self.table(values)
        upper = np.minimum(self.lower + 1, len(table) - 1)
        above = self.above[:, None]
        return place_values(self.levels[self.kind], table[self.lower] * (1 - above) + table[upper] * above)

    def of_classes(self, values: Floats) -> PlaceValues:
        """The values of places of all classes as piecewise linear functions, given the nodes' values (rows,)."""
        levels, value, *_ = self.linear(values)
        if self.steps.any():
            rise = np.where(self.steps[self.kind][:, None], 1 - RISE, 0.5)
            between = levels[:, :-1] * (1 - rise) + levels[:, 1:] * rise
            middle = np.where(rise < 1 - 2 * RISE, (value[:, :-1] + value[:, 1:]) / 2, value[:, :-1])
            levels, value = _merged(levels, between), _merged(value, middle)
        return place_values(np.ascontiguousarray(levels), np.ascontiguousarray(value))


def node_rates(rates_rps: Floats, most_rps: float, steps: bool, many: int, lowest: float) -> Floats:
    """The levels of one kind, ascending from 0.

    Parameters
    ----------
    rates_rps
        The rates of its workloads.
    most_rps
        The most requests/s of a replica that count.
    steps
        Whether each workload has one replica; then the levels are the workloads' rates.
    many, lowest
        Otherwise the number of levels above 0, in equal ratios, and the fraction of the highest that the next lower
        level would be. If one number divides another, the levels of the first are levels of the second.
    """
    if steps:
        return np.append(0.0, np.unique(rates_rps))
    return np.append(0.0, most_rps * lowest ** (np.arange(many)[::-1] / many))


def _merged(one: Floats, between: Floats) -> Floats:
    """(rows, 2 columns - 1) the columns of ``one`` with those of ``between`` between them."""
    found = np.empty((len(one), one.shape[1] + between.shape[1]))
    found[:, ::2], found[:, 1::2] = one, between
    return found


STEPS = 1000
"""The steps into which the highest level is divided."""


@compiled
def least_value(rps: Floats, value: Floats, rates_rps: Floats, counts: Ints) -> Floats:
    """(rates,) the least value of a replica set for each rate.

    ``counts`` (rates, levels) is overwritten by the replicas of the set at each level.
    The replica between levels carries the rest.
    """
    levels, step = len(rps), rps[-1] / STEPS
    size = int(np.ceil(rates_rps.max() / step)) + STEPS + 1
    least, chosen = np.full(size, np.inf), np.full(size, -1)
    least[0] = 0.0
    whole = np.empty(levels, np.int64)
    for level in range(levels):
        whole[level] = int(np.ceil(rps[level] / step - 1e-9))
    for total in range(1, size):
        for level in range(1, levels):
            if whole[level] <= total and least[total - whole[level]] + value[level] < least[total]:
                least[total], chosen[total] = least[total - whole[level]] + value[level], level
    useful, many, cheapest = np.empty(size, np.int64), 0, np.inf
    for total in range(size - 1, -1, -1):  # a larger total at a lower value beats this one
        if least[total] < cheapest:
            cheapest, useful[many], many = least[total], total, many + 1
    found = np.full(len(rates_rps), np.inf)
    counts[:] = 0
    for one in range(len(rates_rps)):
        best = -1
        for which in range(many):
            total = useful[which]
            rest = rates_rps[one] - total * step
            worth = least[total] + (value_at(rps, value, rest) if rest > 0 else 0.0)
            if rest <= rps[-1] and worth < found[one]:
                found[one], best = worth, total
        while best > 0:
            counts[one, chosen[best]] += 1
            best -= whole[chosen[best]]
    return found


class WorkloadClass(NamedTuple):
    """Similar workloads.

    ``members`` are their indices and ``rates_rps`` the rates that are planned for them, in descending order.
    ``slo_ms`` holds their shortest and their longest SLO.
    """

    models: tuple[str, ...]
    slo_ms: tuple[float, float]
    members: Ints
    rates_rps: Floats

    def only(self, kept: Bools) -> "WorkloadClass":
        """The class of some of its workloads; ``kept`` (members,) tells which."""
        return self._replace(members=self.members[kept], rates_rps=self.rates_rps[kept])

    def group(self, longest: bool) -> Group:
        """The class as one Group of the highest rate, with its longest or its shortest SLO, without replica limits.

        Operating points are computed with the tolerances of bounds. So for plans the SLO is a little shorter, and the
        rate a little higher.
        """
        slo_ms = self.slo_ms[1] if longest else self.slo_ms[0] * (1 - 2 * FORGIVEN)
        rate_rps = float(self.rates_rps[0]) * (1 if longest else 1 + 2 * FORGIVEN)
        return Group(self.models, slo_ms, rate_rps, 1, math.inf, math.inf, tuple(self.members.tolist()))


def classes_of(instance: Instance, members: Ints, rates_rps: Floats, most: int) -> list[WorkloadClass]:
    """Divide workloads, or parts of workloads, into about ``most`` classes.

    ``members`` are the indices of the workloads, and ``rates_rps`` their rates or those of their parts. Workloads of a
    class agree in models, traffic, limits on tokens, and whether they may be split; and their SLOs are in one range.
    There are as many ranges for all such combinations.
    """
    alike: dict[object, list[int]] = {}
    for at, workload in enumerate(members.tolist()):
        one = instance.workloads[workload]
        limits = one.limits if one.tokens else None
        key = (one.models, instance.policy.traffic_of(one), one.tokens, limits, one.max_replicas == 1)
        alike.setdefault(key, []).append(at)
    ranges, found = most // max(len(alike), 1), []
    every_ms = np.array([instance.workloads[at].slo_ms for at in members.tolist()])
    for several in map(np.array, alike.values()):
        slo_ms, bin_of = every_ms[several], bins(every_ms[several], max(ranges, 1))
        for chosen in (np.flatnonzero(bin_of == one) for one in np.unique(bin_of)):
            order = several[chosen[np.argsort(-rates_rps[several[chosen]], kind="stable")]]
            ends = float(slo_ms[chosen].min()), float(slo_ms[chosen].max())
            found.append(WorkloadClass(instance.workloads[members[order[0]]].models, ends, members[order],
                                       rates_rps[order]))
    return found


def bins(values: Floats, most: int) -> Ints:
    """(values,) numbers of bins with equal ratios of highest to lowest value; few distinct values have a bin each.
    """
    distinct, of_value = np.unique(values, return_inverse=True)
    if len(distinct) <= most:
        return of_value
    wide = math.log(distinct[-1] / distinct[0]) * (1 + DUST)
    return np.minimum(np.log(values / distinct[0]) / wide * most, most - 1).astype(int)

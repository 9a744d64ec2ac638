"""The linear program of a bound that counts whole replicas: its rows, and its columns so far.

    minimise   price of the patterns
    nodes      places of patterns, as weights of the nodes next to them  >=  replicas of replica sets, likewise
    demand     replica sets of the workloads of a cell  >=  number of these workloads

The duals of the nodes are values of places (`values`). A cell has similar workloads, which count with their mean rate.
The program only chooses the values, so cells need not be exact.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, hstack

from provision.formulations.large.classes import WorkloadClass, bins
from provision.formulations.large.climb import PlaceValues
from provision.formulations.large.covering import least_value, value_at
from provision.formulations.large.schedule import SCHEDULE
from provision.formulations.large.values import ValueNodes
from provision.formulations.linear.highs import Rows, solve_linear
from provision.models.base.arrays import Floats, Ints


class Cell(NamedTuple):
    """Similar workloads: a class, their mean rate, and their number."""

    of_class: int
    rate_rps: float
    many: int


class ValueProgram:
    """The linear program.

    Parameters
    ----------
    nodes
        The nodes of the values.
    classes
        The classes that the nodes are for.
    """

    def __init__(self, nodes: ValueNodes, classes: Sequence[WorkloadClass]) -> None:
        self.nodes, self.rows = nodes, nodes.shape[0] * nodes.shape[1]
        self.cells = _cells(nodes, classes)
        self.right = np.append(np.zeros(self.rows), [one.many for one in self.cells]).astype(float)
        self.columns, self.cost = self._moves(), np.zeros(self.rows)
        levels = nodes.levels[nodes.kind]
        self._add_sets(PlaceValues(levels, levels), np.full(len(self.cells), np.inf))

    def add_patterns(self, of_class: Ints, rps: Floats, price: float) -> None:
        """Add patterns of a price, given as (patterns, places) classes, negative at empty places, and requests/s."""
        pattern, place = np.nonzero(of_class >= 0)
        rows, weights = self.nodes.parts(of_class[pattern, place], rps[pattern, place])
        self._add(rows.ravel(), np.repeat(pattern, rows.shape[1]), weights.ravel(), np.full(len(of_class), price))

    def solved(self) -> Floats | None:
        """(rows,) values of the nodes at an optimum, after the replica sets that lower it are added; None if there is
        none.
        """
        turn = 0
        while True:
            free, turn = np.zeros(len(self.cost)), turn + 1
            found = solve_linear(Rows(self.cost, self.columns, self.right, free, np.full(len(free), np.inf)))
            if found is None:
                return None
            values = self.nodes.of_classes(found.duals[: self.rows])
            if not self._add_sets(values, found.duals[self.rows:]) or turn == SCHEDULE.set_rounds:
                break
        self._drop(found.reduced)
        return found.duals[: self.rows]

    def _drop(self, reduced: Floats) -> None:
        """Keep the moves, the columns added since the last solution, and the best of the others."""
        worst = np.sort(reduced)[min(self.rows + SCHEDULE.columns, len(reduced) - 1)]
        kept = np.ones(len(self.cost), bool)
        kept[: len(reduced)] = reduced <= worst
        kept[: self.rows] = True
        self.columns, self.cost = csc_array(self.columns[:, np.flatnonzero(kept)]), self.cost[kept]

    def _moves(self) -> csc_array:
        """Columns that lower a place by a level, and that provide places without rate."""
        levels, at = self.nodes.shape[1], np.arange(self.rows)
        upper, first = at[at % levels > 0], at[at % levels == 0]
        value = np.concatenate([-np.ones(len(upper)), np.ones(len(upper) + len(first))])
        entries = value, (np.concatenate([upper, upper - 1, first]), np.concatenate([upper, upper, first]))
        return csc_array(coo_array(entries, (len(self.right), self.rows)))

    def _add(self, rows: Ints, columns: Ints, weights: Floats, cost: Floats) -> None:
        """Add columns, given by their entries and costs."""
        new = csc_array(coo_array((weights, (rows, columns)), (len(self.right), len(cost))))
        self.columns, self.cost = csc_array(hstack([self.columns, new])), np.append(self.cost, cost)

    def _add_sets(self, values: PlaceValues, known: Floats) -> bool:
        """Add the cheapest replica set of every cell that is cheaper than the ``known`` ones, (cells,); return whether
        there are any.
        """
        rows, columns, weights, many = list[Ints](), list[Ints](), list[Floats](), 0
        for number, one in enumerate(self.cells):
            rps, value = values.rps[one.of_class], values.value[one.of_class]
            counts = np.zeros((1, len(rps)), int)
            least_value(rps, value, np.array([one.rate_rps]), counts)
            rest = max(one.rate_rps - float(counts[0] @ rps), 0.0)
            if counts[0] @ value + value_at(rps, value, rest) >= known[number] * (1 - SCHEDULE.slight):
                continue
            used = np.flatnonzero(counts[0])
            parts = self.nodes.parts(np.full(len(used) + 1, one.of_class), np.append(rps[used], rest))
            rows.append(np.append(parts.rows.ravel(), self.rows + number))
            weights.append(np.append(-(parts.weights * np.append(counts[0][used], 1)[:, None]).ravel(), 1.0))
            columns.append(np.full(parts.rows.size + 1, many))
            many += 1
        if many:
            self._add(np.concatenate(rows), np.concatenate(columns), np.concatenate(weights), np.zeros(many))
        return many > 0


def _cells(nodes: ValueNodes, classes: Sequence[WorkloadClass]) -> list[Cell]:
    """The cells: each has half of the interval between two SLOs of nodes, and a range of rates."""
    found, near = list[Cell](), (2 * (nodes.lower + nodes.above)).astype(int)
    of_class = np.repeat(np.arange(len(classes)), [len(one.members) for one in classes])
    rates_rps = np.concatenate([one.rates_rps for one in classes])
    for kind in np.unique(nodes.kind):
        here = np.flatnonzero(nodes.kind[of_class] == kind)
        keys = near[of_class[here]] * SCHEDULE.cell_rates + bins(rates_rps[here], SCHEDULE.cell_rates)
        for key in np.unique(keys):
            chosen = here[keys == key]
            middle = int(np.sort(of_class[chosen])[len(chosen) // 2])
            found.append(Cell(middle, float(rates_rps[chosen].mean()), len(chosen)))
    return found

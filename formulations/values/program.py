"""The linear program whose duals are the prices of replicas: its rows, and its columns so far.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns on k
    nodes      replicas of patterns, as weights of the nodes next to them  >=  replicas of replica sets, likewise
    demand     replica sets of the workloads of a cell  >=  number of these workloads

The duals of the nodes are the values of replicas (`nodes`). A cell has similar workloads, which count with their mean
rate. The program only chooses the prices, so cells need not be exact.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, hstack

from provision.formulations.linear.restricted import Columns, RestrictedMaster
from provision.formulations.pricing.mps.offers import PlaceValues, value_at
from provision.formulations.search.problem import Problem
from provision.formulations.values.classes import WorkloadClass, bins
from provision.formulations.values.nodes import ValueNodes, least_value
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints


class Cell(NamedTuple):
    """Similar workloads: a class, their mean rate, and their number."""

    of_class: int
    rate_rps: float
    many: int


class Prices(NamedTuple):
    """Duals: (slice types,) prices of slices, and (rows,) values of nodes."""

    slices: Floats
    nodes: Floats

    def between(self, other: "Prices | None") -> "Prices":
        """Prices between these and others; these prices if there are no others."""
        part = SCHEDULE.inward
        return self if other is None else Prices(*(part * one + (1 - part) * its
                                                   for one, its in zip(self, other, strict=True)))


class ValueProgram:
    """The linear program.

    Parameters
    ----------
    problem
        The Problem of the classes, which has the pools.
    nodes
        The nodes of the values.
    classes
        The classes that the nodes are for.
    values
        (rows,) values of the nodes, at which the first replica sets are the cheapest.
    cells
        The most ranges of rates of similar workloads, a cell each.

    Attributes
    ----------
    value
        The value of the last solution, in multiples of the dearest GPU's price.
    """

    def __init__(self, problem: Problem, nodes: ValueNodes, classes: Sequence[WorkloadClass], values: Floats,
                 cells: int) -> None:
        self.nodes, self.rows, self.cells = nodes, nodes.shape[0] * nodes.shape[1], _cells(nodes, classes, cells)
        self.single = [bool(nodes.steps[nodes.kind[one.of_class]]) for one in self.cells]
        self.master = RestrictedMaster(problem, nodes=np.zeros(self.rows),
                                       demand=np.array([one.many for one in self.cells], float))
        self.fixed = [self.master.tiers(), self.master.partitions, self._moves()]
        self.found, self.value = self.master.columns(np.zeros(0)), 0.0
        self._add_sets(nodes.of_classes(values), np.full(len(self.cells), np.inf))

    def __len__(self) -> int:
        """The number of columns."""
        return len(self.found.cost)

    def add_patterns(self, slice_type: Ints, of_class: Ints, rps: Floats) -> None:
        """Add patterns: (patterns,) their slice types, and (patterns, places) classes, negative at empty places, and
        requests/s.
        """
        pattern, place = np.nonzero(of_class >= 0)
        rows, weights = self.nodes.parts(of_class[pattern, place], rps[pattern, place])
        first = self.master.rows["nodes"].start
        every = np.arange(len(of_class))
        self._add(np.append(first + rows.ravel(), self.master.rows["slices"].start + slice_type),
                  np.append(np.repeat(pattern, rows.shape[1]), every),
                  np.append(weights.ravel(), np.full(len(every), -1.0)), len(every))

    def solved(self) -> Prices | None:
        """The duals at an optimum, after the replica sets that lower it are added; None if there is no solution."""
        for _ in range(SCHEDULE.set_rounds):
            found = self.master.relaxed([*self.fixed, self.found])
            if found is None:
                return None
            self.value, (_, slices, nodes, demand) = found.value, self.master.split(found.duals).values()
            if not self._add_sets(self.nodes.of_classes(nodes), demand):
                break
        return Prices(slices, nodes)

    def _moves(self) -> Columns:
        """Columns that lower a place by a level, and that provide places without rate."""
        levels, at = self.nodes.shape[1], np.arange(self.rows)
        upper, first = at[at % levels > 0], at[at % levels == 0]
        value = np.concatenate([-np.ones(len(upper)), np.ones(len(upper) + len(first))])
        entries = value, (np.concatenate([upper, upper - 1, first]), np.concatenate([upper, upper, first]))
        return self.master.columns(np.zeros(self.rows), nodes=csc_array(coo_array(entries, (self.rows, self.rows))))

    def _add(self, rows: Ints, columns: Ints, weights: Floats, many: int) -> None:
        """Add columns, given by their entries in the rows of the whole program."""
        matrix = csc_array(coo_array((weights, (rows, columns)), (len(self.master.right), many)))
        cost = np.zeros(len(self.found.cost) + many)
        self.found = Columns(csc_array(hstack([self.found.matrix, matrix])), cost, cost, np.full(len(cost), np.inf))

    def _add_sets(self, values: PlaceValues, known: Floats) -> bool:
        """Add for every cell its cheapest replica set, if this costs less than ``known`` (cells,); return whether any
        was added.
        """
        nodes, demand = self.master.rows["nodes"].start, self.master.rows["demand"].start
        rows, columns, weights, many = list[Ints](), list[Ints](), list[Floats](), 0
        for number, (one, single) in enumerate(zip(self.cells, self.single, strict=True)):
            rps, value = values.rps[one.of_class], values.value[one.of_class]
            counts, rest = np.zeros((1, len(rps)), int), one.rate_rps
            if not single:
                least_value(rps, value, np.array([one.rate_rps]), counts)
                rest = max(one.rate_rps - float(counts[0] @ rps), 0.0)
            if counts[0] @ value + value_at(rps, value, rest) >= known[number] * (1 - SCHEDULE.slight):
                continue
            used = np.flatnonzero(counts[0])
            parts = self.nodes.parts(np.full(len(used) + 1, one.of_class), np.append(rps[used], rest))
            rows.append(np.append(nodes + parts.rows.ravel(), demand + number))
            weights.append(np.append(-(parts.weights * np.append(counts[0][used], 1)[:, None]).ravel(), 1.0))
            columns.append(np.full(parts.rows.size + 1, many))
            many += 1
        if many:
            self._add(np.concatenate(rows), np.concatenate(columns), np.concatenate(weights), many)
        return many > 0


def _cells(nodes: ValueNodes, classes: Sequence[WorkloadClass], ranges: int) -> list[Cell]:
    """The cells: each has half of the interval between two SLOs of nodes, and one of some ranges of rates, or one rate
    where each workload has one replica.
    """
    found, near = list[Cell](), (2 * (nodes.lower + nodes.above)).astype(int)
    of_class = np.repeat(np.arange(len(classes)), [len(one.members) for one in classes])
    rates_rps = np.concatenate([one.rates_rps for one in classes])
    for kind in np.unique(nodes.kind):
        here = np.flatnonzero(nodes.kind[of_class] == kind)
        most = len(here) if nodes.steps[kind] else ranges
        keys = near[of_class[here]] * most + bins(rates_rps[here], most)
        for key in np.unique(keys):
            chosen = here[keys == key]
            middle = int(np.sort(of_class[chosen])[len(chosen) // 2])
            found.append(Cell(middle, float(rates_rps[chosen].mean()), len(chosen)))
    return found

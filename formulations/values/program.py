"""The linear program of prices and plans of many workloads: its patterns, its rows, and its columns so far.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns on k
    nodes      replicas of patterns, as weights of the nodes next to them  >=  replicas of replica sets, likewise, or
               replicas that are wanted
    demand     replica sets of the workloads of a cell  >=  number of these workloads

The duals of the nodes are the values of replicas (`nodes`). A cell has similar workloads, which count with their mean
rate: the programs of bounds only choose the prices, so cells need not be exact. Programs of plans have no cells. They
want replicas at levels, and a replica of a pattern between two levels counts as one of the lower level.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, hstack

from provision.formulations.linear.highs import GrowingProgram
from provision.formulations.linear.restricted import Columns, RestrictedMaster
from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import PlaceValues, choices_of, value_at
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import rate_points, together_rps
from provision.formulations.pricing.schedule import Effort
from provision.formulations.search.problem import Problem
from provision.formulations.values.nodes import ValueNodes, WorkloadClass, bins, least_value
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST
from provision.models.hardware.gpu import WHOLE

UNITS = 10**6
"""The price of the dearest GPU in the whole-number units in which patterns are priced."""


class Patterns:
    """The patterns.

    Parameters
    ----------
    problem
        A Problem with a group for every class.
    part
        The fraction of a replica's requests/s that counts.

    Attributes
    ----------
    slice_types, points, choices
        For each performance file of whole GPUs (a GPU type may have several): the slice type, the operating points, and
        their options.
    file
        (patterns,) the index of the performance file.
    members, of_class, rps
        (patterns, places) the operating point of each replica, its class, and the requests/s that it can carry; NONE,
        NONE and 0 at empty places.
    """

    def __init__(self, problem: Problem, part: float = 1.0) -> None:
        self.problem, types = problem, problem.segments.slice_types
        pairs = [(one.slice_type, rate_points(problem.instance, one.data, problem.groups))
                 for one in problem.shareable if types[one.slice_type].profile == WHOLE]
        pairs = [(slice_type, points) for slice_type, points in pairs if len(points.at)]
        self.slice_types = np.array([slice_type for slice_type, _ in pairs], int)
        self.points, self.part = [points for _, points in pairs], part
        kinds = {one.models: number for number, one in enumerate(problem.groups)}
        self.choices = [choices_of(one, np.array([kinds[group.models] for group in problem.groups]))
                        for one in self.points]
        self.known, self.file = set[tuple[int, bytes]](), np.zeros(0, int)
        self.members = self.of_class = np.zeros((0, SCHEDULE.together), int)
        self.rps = np.zeros((0, SCHEDULE.together))

    def __len__(self) -> int:
        return len(self.file)

    @property
    def alone(self) -> Ints:
        """The indices of the patterns of one replica."""
        return np.flatnonzero((self.members != NONE).sum(axis=1) == 1)

    def add(self, file: int, members: Ints) -> None:
        """Add patterns of a performance file, given as operating points (patterns, places). Patterns that are known,
        or have more than SCHEDULE.together replicas, are left out.
        """
        width, points = SCHEDULE.together, self.points[file]
        members = np.unique(members[(members[:, width:] == NONE).all(axis=1), :width], axis=0)
        members = np.pad(members, ((0, 0), (0, width - members.shape[1])), constant_values=NONE)
        keys = [(file, one.tobytes()) for one in members]
        members = members[[key not in self.known for key in keys]]
        self.known.update(keys)
        self.file = np.append(self.file, np.full(len(members), file))
        self.members = np.concatenate([self.members, members])
        self.of_class = np.concatenate([self.of_class, np.where(members != NONE, points.at.group[members], NONE)])
        self.rps = np.concatenate([self.rps, together_rps(points, members) * self.part])

    def price(self, file: int, values: PlaceValues, price: float, effort: Effort, best: int,
              most: int = SCHEDULE.together) -> float:
        """Add up to ``best`` patterns of a performance file that are worth more than the ``price`` of their slice.
        Return an upper bound on the values of all patterns with at most ``most`` replicas; it may be about the price.
        """
        points = self.points[file]
        members, worth, bound = best_patterns(
            points._replace(most=min(most, points.most)), self.choices[file],
            values._replace(value=values.value * UNITS, beside=values.beside * UNITS), int(price * UNITS), effort)
        self.add(file, members[np.argsort(-worth, kind="stable")[:best]])
        return bound / UNITS


class Cell(NamedTuple):
    """Similar workloads: a class, the rate with which they count, and their number."""

    of_class: int
    rate_rps: float
    workloads: int


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
    patterns
        The patterns, some of which are columns.
    entered
        The indices of those that are columns to begin with; patterns of one replica are columns, too.
    nodes
        The nodes of the values.
    cells
        The cells of all workloads.
    values
        (rows,) first guesses of the nodes' values. The first replica set of each cell is the cheapest at these.
    wanted
        (rows,) for a plan, the replicas that are wanted; None for a bound.

    Attributes
    ----------
    value
        The value of the last solution, in multiples of the dearest GPU's price.
    first
        The column of each pattern that is one, by the index of the pattern.
    """

    def __init__(self, patterns: Patterns, entered: Ints, nodes: ValueNodes, cells: Sequence[Cell], values: Floats,
                 wanted: Floats | None = None) -> None:
        self.patterns, self.nodes, self.cells, self.plans = patterns, nodes, cells, wanted is not None
        self.rows = nodes.shape[0] * nodes.shape[1]
        self.master = RestrictedMaster(patterns.problem, nodes=np.zeros(self.rows) if wanted is None else wanted,
                                       demand=np.array([one.workloads for one in cells], float))
        self.simplex = GrowingProgram()
        self.fixed = [self.master.tiers(), self.master.partitions, self._moves()]
        self.found, self.value = self.master.columns(np.zeros(0)), 0.0
        self.x = self.reduced = np.zeros(0)
        self.first: dict[int, int] = {}
        self._add_sets(nodes.linear(values), np.full(len(cells), np.inf))
        self.enter(np.union1d(entered, patterns.alone))

    @property
    def entered(self) -> Ints:
        """The indices of the patterns that are columns."""
        return np.fromiter(self.first, int)

    def enter(self, rows: Ints) -> None:
        """Enter patterns as columns."""
        known, first = self.patterns, len(self.found.cost)
        self.first |= dict(zip(rows.tolist(), range(first, first + len(rows)), strict=True))
        self.add_patterns(known.slice_types[known.file[rows]], known.of_class[rows], known.rps[rows])

    def add_patterns(self, slice_type: Ints, of_class: Ints, rps: Floats) -> None:
        """Add columns of patterns: (patterns,) their slice types, and (patterns, places) classes, negative at empty
        places, and requests/s.
        """
        pattern, place = np.nonzero(of_class >= 0)
        rows, weights = self.nodes.parts(of_class[pattern, place], rps[pattern, place])
        first = self.master.rows["nodes"].start
        every = np.arange(len(of_class))
        self._add(np.append(first + rows.ravel(), self.master.rows["slices"].start + slice_type),
                  np.append(np.repeat(pattern, rows.shape[1]), every),
                  np.append(weights.ravel(), np.full(len(every), -1.0)), len(every))

    def priced(self, until: Deadline, effort: Effort, best: int, over: float) -> Prices | None:
        """The duals of the program over all patterns found so far, and over those that quick pricing finds until a
        deadline; None if there is no solution.

        Known patterns are added until the value hardly falls, in programs of plans even after the deadline. Then up to
        ``best`` new patterns of each performance file are priced with an ``effort``. This is repeated while it lowers
        the value by the fraction ``over``.
        """
        patterns, before, priced = self.patterns, math.inf, math.inf
        while (found := self.simplex.solve(self.master.program([*self.fixed, self.found]))) is not None:
            self.value, (_, slices, nodes, demand) = found.value, self.master.split(found.duals).values()
            columns, first = len(self.found.cost), len(found.x) - len(self.found.cost)
            self.x, self.reduced = found.x[first:], found.reduced[first:]
            values = self.nodes.of_classes(nodes)
            self._add_sets(self.nodes.linear(nodes), demand)
            new, most = self._worthy(slices, values)
            self.enter(new)
            gains, before = most > SCHEDULE.over or self.value < before * (1 - SCHEDULE.gain), self.value
            if gains and len(self.found.cost) > columns and (self.plans or not until.over):
                continue
            if until.over or self.value >= priced * (1 - over):
                return Prices(slices, nodes)
            priced = self.value
            for file, price in enumerate(slices[patterns.slice_types].tolist()):
                patterns.price(file, values, price, effort, best)
        return None

    def used(self) -> Floats:
        """(patterns,) how often the last solution uses each pattern."""
        numbers = np.zeros(len(self.patterns))
        for pattern, column in self.first.items():
            numbers[pattern] = self.x[column] if column < len(self.x) else 0.0
        return numbers

    def integral(self, time_limit_s: float) -> Ints | None:
        """(patterns,) the cheapest whole numbers of patterns, among those of least reduced cost in the last solution;
        None if they are not found in time. No number is below a fixed one.
        """
        found, reduced = self.found, np.full(len(self.found.cost), np.inf)
        reduced[:len(self.reduced)] = self.reduced
        most = np.partition(reduced, min(SCHEDULE.integral, len(reduced) - 1))[: SCHEDULE.integral].max()
        kept = np.flatnonzero((reduced <= most) | (found.least > 0))
        chosen = found._replace(matrix=found.matrix[:, kept], cost=found.cost[kept], least=found.least[kept],
                                most=found.most[kept])
        tiers, partitions, moves = self.fixed
        solved = self.master.integral([tiers, partitions, moves._replace(whole=False), chosen], time_limit_s)
        if solved.x is None or solved.status != "optimal":
            return None
        self.x = np.zeros(len(found.cost))
        self.x[kept] = solved.x[len(solved.x) - len(kept):]
        return np.rint(self.used()).astype(int)

    def fix(self, numbers: Ints) -> None:
        """Let further solutions use each pattern at least as often as in ``numbers`` (patterns,)."""
        for pattern in np.flatnonzero(numbers).tolist():
            self.found.least[self.first[pattern]] = numbers[pattern]

    def _worthy(self, slices: Floats, values: PlaceValues) -> tuple[Ints, float]:
        """The patterns that exceed the price of their slice most and are no columns yet; and the largest excess, as a
        fraction of this price.
        """
        known = self.patterns
        price = np.maximum(slices[known.slice_types[known.file]], DUST)
        over = worth_of(known.of_class, known.rps, values) / price - 1
        over[self.entered] = 0.0
        best = np.argsort(-over, kind="stable")[: SCHEDULE.best]
        return best[over[best] > SCHEDULE.slight], float(over.max(initial=0.0))

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
        cost, least = np.zeros(len(self.found.cost) + many), np.append(self.found.least, np.zeros(many))
        self.found = Columns(csc_array(hstack([self.found.matrix, matrix])), cost, least, np.full(len(cost), np.inf))

    def _add_sets(self, values: PlaceValues, known: Floats) -> None:
        """Add for every cell its cheapest replica set, if this costs less than ``known`` (cells,). ``values`` are
        linear between levels.
        """
        nodes, demand = self.master.rows["nodes"].start, self.master.rows["demand"].start
        rows, columns, weights, many = list[Ints](), list[Ints](), list[Floats](), 0
        for number, (counts, rest) in enumerate(self._cheapest(values)):
            at = self.cells[number].of_class
            rps, value = values.rps[at], values.value[at]
            if counts @ value + value_at(rps, value, rest) >= known[number] * (1 - SCHEDULE.slight):
                continue
            used = np.flatnonzero(counts)
            parts = self.nodes.parts(np.full(len(used) + 1, at), np.append(rps[used], rest))
            rows.append(np.append(nodes + parts.rows.ravel(), demand + number))
            weights.append(np.append(-(parts.weights * np.append(counts[used], 1)[:, None]).ravel(), 1.0))
            columns.append(np.full(parts.rows.size + 1, many))
            many += 1
        if many:
            self._add(np.concatenate(rows), np.concatenate(columns), np.concatenate(weights), many)

    def _cheapest(self, values: PlaceValues) -> Iterator[tuple[Ints, float]]:
        """Yield the cheapest replica set of every cell: (levels,) how many replicas it has at each level, and the
        requests/s that one further replica carries.
        """
        for at, several in groupby(self.cells, key=lambda one: one.of_class):
            rps, rates_rps = values.rps[at], np.array([one.rate_rps for one in several])
            counts, rests = np.zeros((len(rates_rps), len(rps)), int), rates_rps
            if not self.nodes.steps[self.nodes.kind[at]]:
                least_value(rps, values.value[at], rates_rps, counts)
                rests = np.maximum(rates_rps - counts @ rps, 0.0)
            yield from zip(counts, rests.tolist(), strict=True)


def cells_of(classes: Sequence[WorkloadClass], kind: Ints, near: Ints, ranges: int, single: Bools
             ) -> list[Cell]:
    """Group workloads into cells. The workloads of a cell have the same ``kind`` (classes,), the same ``near``
    (classes,), and rates in the same of some ``ranges``; where ``single`` (kinds,) is true, they have the same rate.
    The cell counts with their mean rate.
    """
    found = list[Cell]()
    of_class = np.repeat(np.arange(len(classes)), [len(one.members) for one in classes])
    rates_rps = np.concatenate([one.rates_rps for one in classes])
    for number in np.unique(kind[of_class]):
        here = np.flatnonzero(kind[of_class] == number)
        most = len(here) if single[number] else ranges
        keys = near[of_class[here]] * most + bins(rates_rps[here], most)
        for key in np.unique(keys):
            chosen = here[keys == key]
            middle = int(np.sort(of_class[chosen])[len(chosen) // 2])
            found.append(Cell(middle, float(rates_rps[chosen].mean()), len(chosen)))
    return found


@compiled
def worth_of(of_class: Ints, rps: Floats, values: PlaceValues) -> Floats:
    """(patterns,) the values of patterns, given as (patterns, places) classes, negative at empty places, and rates."""
    found = np.zeros(len(rps))
    for row in range(len(rps)):
        for place in range(rps.shape[1]):
            one = of_class[row, place]
            if one >= 0:
                found[row] += value_at(values.rps[one], values.value[one], rps[row, place])
    return found

"""A bound for many workloads under interference that counts whole replicas.

Take any function that gives every replica a value, by its class and by the requests/s that it carries, and that does
not fall with the latter. A workload's replicas are worth at least what its cheapest replica set is: replicas that
carry its rate together (`covering`). No GPU's replicas are worth more than its best pattern, which exact pricing bounds
(`pricing`). So the numbers of GPUs, each times the value of its best pattern, are no less than these least values
(`type_counts`). A workload counts with the longest SLO of its class. The function is that of the best linear program so
far (`relaxation`), averaged with the one that proved the best bound.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.bounds.type_counts import FINE, TypeCounts
from provision.formulations.large.bound import patterns_of
from provision.formulations.large.classes import WorkloadClass
from provision.formulations.large.climb import NONE, PlaceValues, climbed, table_of
from provision.formulations.large.covering import least_value
from provision.formulations.large.pricing import best_patterns, choices_of
from provision.formulations.large.relaxation import ValueProgram
from provision.formulations.large.schedule import SCHEDULE
from provision.formulations.large.values import ValueNodes, in_steps, kinds_of
from provision.formulations.pricing.mps.rate_lists import small_patterns
from provision.formulations.pricing.mps.rate_points import together_rps
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.tolerances import FORGIVEN, MISSING, SOLVER
from provision.models.problem.instance import Instance

UNITS = 10**6
"""The price of the dearest GPU in the units in which patterns are priced."""


class WholeReplicaBound:
    """The bound over some classes. ``proof`` holds the proven bound.

    Parameters
    ----------
    instance
        The problem.
    classes
        Classes of all its workloads that need a replica.
    seed
        Seed of the local search for patterns.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass], seed: int) -> None:
        self.classes, self.draw = classes, np.random.default_rng(seed)
        self.problem = problem = Problem(instance, [one.group(longest=True) for one in classes], relaxed_problem=True)
        oracles = patterns_of(problem)
        self.points = [one.points for _, one in oracles]
        self.pool = [next(at for at, pool in enumerate(problem.pools) if slice_type in pool.slice_types)
                     for slice_type, _ in oracles]
        self.price = [problem.pools[at].worth / problem.dearest for at in self.pool]
        kind = kinds_of([(one.models, instance.policy.traffic_of(instance.workloads[int(one.members[0])]))
                         for one in classes])
        self.tables = [table_of(one) for one in self.points]
        self.choices = [choices_of(one, kind) for one in self.points]
        alone = [small_patterns(one, 1, SCHEDULE.alone).members if len(one.units) else np.zeros((0, 1), int)
                 for one in self.points]
        most_rps = np.zeros(kind.max() + 1)
        for points, members in zip(self.points, alone, strict=True):
            np.maximum.at(most_rps, kind[points.group[members[:, 0]]], together_rps(points, members)[:, 0])
        self.served, self.proof = bool((most_rps > 0).all()), TypeCounts(problem.pools, problem.most_gpus)
        slos_ms = np.array([one.slo_ms[1] for one in classes])
        self.nodes = ValueNodes(kind, slos_ms, np.maximum(most_rps, 1.0) * (1 + 2 * FORGIVEN), SCHEDULE.slos,
                                SCHEDULE.value_step, SCHEDULE.lowest)
        self.program = ValueProgram(self.nodes, classes)
        self.members = [np.zeros((0, SCHEDULE.together), int) for _ in self.points]
        for at, members in enumerate(alone):
            self._add(at, members)

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Yield the proven bound, in units of price, after every round of pricing.

        The rounds end when no pattern is new, or when the next round would take too long: rounds become longer, by the
        same factor as the last one. The first round always runs.
        """
        center, best, took_s, factor, new = None, 0.0, 0.0, 1.0, self.served
        while new and (center is None or took_s * factor < until.left_s):
            watch = Stopwatch()
            duals = self.program.solved()
            if duals is None:
                return
            duals = duals if center is None else (duals + center) / 2
            values, columns = self.nodes.of_classes(duals), len(self.program.cost)
            most = [self._price(at, values) for at in range(len(self.points))]
            asked = self._asked(values)
            worth = asked / max(one / price for one, price in zip(most, self.price, strict=True))
            if center is None or worth > best:
                center, best = duals, worth
            full = np.zeros(len(self.problem.pools))
            np.maximum.at(full, self.pool, most)
            self.proof.add(math.floor(asked * FINE) - 1, [math.ceil(one * FINE) + 1 for one in full.tolist()])
            yield self.proof.bound
            factor = max(watch.elapsed_s / took_s, 1.0) if took_s else 1.0
            new, took_s = len(self.program.cost) > columns, watch.elapsed_s

    def _price(self, at: int, values: PlaceValues) -> float:
        """Add patterns of a GPU type that are worth more than it; return a value that none exceeds."""
        points, price, known = self.points[at], self.price[at], self.members[at]
        if not len(points.units):
            return 0.0
        starts = np.concatenate([known[-SCHEDULE.starts // 2:], self.draw.permutation(known)[: SCHEDULE.starts // 2]])
        steps = in_steps(values, points.most_rps, SCHEDULE.fine)
        found, worth = climbed(points, self.tables[at], steps, np.ascontiguousarray(starts), self.draw)
        self._add(at, found[worth > price * (1 + SOLVER)])
        scaled = PlaceValues(values.rps, values.value * UNITS)
        priced = best_patterns(points, self.choices[at], scaled, int(price * UNITS), SCHEDULE.nodes, SCHEDULE.close,
                               SCHEDULE.room)
        self._add(at, priced.members[np.argsort(-priced.value, kind="stable")[: SCHEDULE.best]])
        return priced.most / UNITS

    def _add(self, at: int, members: Ints) -> None:
        """Add patterns of a GPU type, (patterns, places) as points, unless they have too many replicas."""
        width, points = SCHEDULE.together, self.points[at]
        members = members[(members[:, width:] == NONE).all(axis=1), :width]
        members = np.pad(members, ((0, 0), (0, width - members.shape[1])), constant_values=NONE)
        if len(members):
            members = np.unique(members, axis=0)
            of_class = np.where(members != NONE, points.group[members], NONE)
            self.program.add_patterns(of_class, together_rps(points, members), self.price[at])
            self.members[at] = np.concatenate([self.members[at], members])

    def _asked(self, values: PlaceValues) -> float:
        """The least values of replica sets of all workloads. Their rates are rounded down to a fine grid."""
        total = 0.0
        for at, one in enumerate(self.classes):
            grid = np.geomspace(one.rates_rps[-1], one.rates_rps[0], SCHEDULE.grid)
            grid[0] = one.rates_rps[-1]
            which = np.searchsorted(grid, one.rates_rps, "right") - 1
            counts = np.zeros((len(grid), values.rps.shape[1]), int)
            least: Floats = least_value(values.rps[at], values.value[at], grid * (1 - MISSING), counts)
            total += float(least[which].sum())
        return total

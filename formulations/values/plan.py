"""Plans for many workloads under interference: whole numbers of patterns, and workloads in their places.

A place is where one replica of a pattern runs. The program of places (`levels`) tells how often each pattern and each
replica set is used. Its values of places lead the pricing of better patterns. Then whole numbers of patterns are taken,
and workloads get replica sets of their places. Workloads and places that are left are planned again. The last few
workloads are left to other methods.

The patterns are for classes at their shortest SLOs.
"""

import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import PlaceValues, step_values
from provision.formulations.pricing.mps.rate_lists import small_patterns
from provision.formulations.pricing.mps.rate_points import running_at
from provision.formulations.pricing.mps.schedule import SCHEDULE as PRICING
from provision.formulations.pricing.oracle import replica_of
from provision.formulations.search.problem import Problem
from provision.formulations.values.classes import WorkloadClass, bins
from provision.formulations.values.levels import Mix, PlaceProgram, ReplicaSet, cheapest, levels_of, replica_sets
from provision.formulations.values.patterns import Patterns
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST, FORGIVEN, SOLVER
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

Waiting = tuple[float, int]
"""A workload that has no replicas yet: its requests/s and index."""
Place = tuple[float, int, int]
"""A place: the requests/s that its replica can carry, the index of the GPU, and the place in the pattern."""


class Demand(NamedTuple):
    """The rows of one class in the program: ``first`` is the row of its lowest level, ``ends`` are the numbers of
    waiting workloads up to the end of each range of rates, and ``number`` is the number of the first range.
    """

    first: int
    levels: Floats
    ends: list[int]
    number: int


class LargePlan:
    """A plan of most workloads of some classes.

    Parameters
    ----------
    instance
        The problem.
    classes
        Classes of workloads that may be split freely.
    ranges
        The most ranges of rates of each class.

    Attributes
    ----------
    pools, price
        The pool of each performance file, and (files,) the price of its GPUs in multiples of the dearest GPU's.
    most_rps
        (classes, files) the most requests/s of a replica; 0 where it cannot run.
    left
        For each class, the workloads that have no replicas yet, in ascending order.
    value
        The value of the first program, in multiples of the dearest GPU's price.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass], ranges: int) -> None:
        self.instance, self.ranges = instance, ranges
        self.problem = problem = Problem(instance, [one.group(longest=False) for one in classes])
        self.patterns = known = Patterns(problem, 1 - FORGIVEN)
        for file, points in enumerate(known.points):
            known.add(file, small_patterns(points, PRICING.small, PRICING.listed))
        self.most_rps, alone = np.zeros((len(classes), len(known.points))), known.alone
        np.maximum.at(self.most_rps, (known.of_class[alone, 0], known.file[alone]), known.rps[alone, 0])
        self.pools = [next(pool for pool in problem.pools if one in pool.slice_types) for one in known.slice_types]
        self.price = np.array([pool.worth / problem.dearest for pool in self.pools])
        self.left: list[list[Waiting]] = [
            list(zip(one.rates_rps[::-1].tolist(), one.members[::-1].tolist(), strict=True)) for one in classes]
        self.free: list[list[Place]] = [[] for _ in classes]
        self.gpus: list[int] = []
        self.served: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
        self.value = 0.0

    def run(self, until: Deadline, below: float = math.inf) -> None:
        """Plan the rates that are left, pass by pass, unless the first program's value is not ``below`` some value. The
        first pass is made even if the deadline is over.

        A pass takes whole numbers of patterns and replica sets, rounded down. The next passes also round up those of
        the largest fractions: their places stay free for the workloads that are left.
        """
        turn, part = 0, 0.0
        while any(self.left) and not (turn and until.over):
            demands, sets = self._demands()
            mix = self._mixed(demands, sets, 1 if turn else SCHEDULE.priced, until)
            if mix is None:
                return
            self.value = self.value or mix.value
            if self.value >= below:
                return
            waiting = sum(map(len, self.left))
            self._take(_rounded(mix.patterns, part))
            self._serve(demands, mix, part > 0)
            part = SCHEDULE.dive if turn or sum(map(len, self.left)) == waiting else 0.0
            turn += 1

    def planned(self) -> list[PlannedGpu]:
        """The GPUs that carry workloads."""
        found = []
        for gpu, served in sorted(self.served.items()):
            pool = self.pools[self.patterns.file[self.gpus[gpu]]]
            replicas = [self._replica(self.gpus[gpu], *one) for one in sorted(served)]
            found.append(PlannedGpu(gpu=pool.gpu, mig=pool.mig,
                                    slices=(Slice(profile=WHOLE, start=0, replicas=tuple(replicas)),)))
        return found

    def _replica(self, pattern: int, place: int, workload: int, rate_rps: float) -> Replica:
        """The replica at a place of a pattern, for a workload of its class."""
        points, at = self.patterns.points[self.patterns.file[pattern]], self.patterns.members[pattern, place]
        return replica_of(self.instance, workload, running_at(points, at), rate_rps)

    def _demands(self) -> tuple[list[Demand], list[ReplicaSet]]:
        """The rows of all classes for the workloads that are left, and the replica sets."""
        demands, sets, row, number = list[Demand](), list[ReplicaSet](), 0, 0
        for at, left in enumerate(self.left):
            most_rps = self.most_rps[at][self.most_rps[at] > 0]
            if not left or not len(most_rps):
                demands.append(Demand(row, np.zeros(0), [], number))
                continue
            rates_rps = np.array([rate_rps for rate_rps, _ in left])
            ends = (np.flatnonzero(np.diff(bins(rates_rps, self.ranges), append=-1)) + 1).tolist()
            highest = rates_rps[np.array(ends) - 1]
            levels = levels_of(most_rps, highest)
            full = sorted({int(np.searchsorted(levels, one * (1 + DUST), "right")) - 1 for one in most_rps.tolist()})
            sets += dict.fromkeys(
                ReplicaSet(number + which, tuple(row + level for level in one))
                for which, rate_rps in enumerate(highest.tolist()) for one in replica_sets(levels, full, rate_rps))
            demands.append(Demand(row, levels, ends, number))
            row, number = row + len(levels), number + len(ends)
        return demands, sets

    def _mixed(self, demands: Sequence[Demand], sets: Sequence[ReplicaSet], priced: int, until: Deadline) -> Mix | None:
        """The solution of the program for what is left, after patterns were priced up to ``priced`` times."""
        patterns, rows = self.patterns, demands[-1].first + len(demands[-1].levels)
        below, spare = np.arange(-1, rows - 1), np.zeros(rows, int)
        for one, free in zip(demands, self.free, strict=True):
            if len(one.levels):
                below[one.first] = -1
                at = np.searchsorted(one.levels, np.array([rps for rps, *_ in free]) * (1 + DUST), "right") - 1
                np.add.at(spare, one.first + at[at >= 0], 1)
        wanted = [many for one in demands for many in np.diff(one.ends, prepend=0).tolist()]
        begin, value, program = patterns.alone, np.inf, PlaceProgram(self.problem, below, spare, sets, wanted)
        while True:
            places = self._places(demands, rows)
            mix = program.solved(patterns.slice_types[patterns.file], places, begin)
            if mix is None or priced == 0 or until.over or mix.value > value * (1 - SCHEDULE.gain):
                return mix
            priced, value, used = priced - 1, mix.value, np.flatnonzero(mix.patterns > SOLVER)
            values, many = self._values(demands, mix.places), len(patterns)
            for file, price in enumerate(self.price.tolist()):
                patterns.price(file, values, price, SCHEDULE.quick, SCHEDULE.few)
            program.replica_sets |= dict.fromkeys(self._cheapest(demands, mix))
            begin = np.concatenate([begin, used, np.arange(many, len(patterns))])

    def _cheapest(self, demands: Sequence[Demand], mix: Mix) -> Iterator[ReplicaSet]:
        """Yield the cheapest replica set of each range at the values of places, if it is worth using."""
        for one, left in zip(demands, self.left, strict=True):
            values = mix.places[one.first: one.first + len(one.levels)]
            highest = [left[end - 1][0] for end in one.ends]
            for which, levels in enumerate(cheapest(one.levels, values, highest) if highest else ()):
                if values[list(levels)].sum() < mix.demands[one.number + which] * (1 - SOLVER):
                    yield ReplicaSet(one.number + which, tuple(one.first + level for level in levels))

    def _places(self, demands: Sequence[Demand], rows: int) -> Ints:
        """(patterns, places) the row of each place: its highest level; the number of rows if it has none."""
        patterns = self.patterns
        found = np.full(patterns.rps.shape, rows)
        for at, one in enumerate(demands):
            if len(one.levels):
                here = patterns.of_class == at
                level = np.searchsorted(one.levels, patterns.rps[here] * (1 + DUST), "right") - 1
                found[here] = np.where(level >= 0, one.first + level, rows)
        return found

    def _values(self, demands: Sequence[Demand], values: Floats) -> PlaceValues:
        """The values of the places of all classes, as step functions of their rates."""
        return step_values([one.levels for one in demands],
                           [values[one.first: one.first + len(one.levels)] for one in demands])

    def _take(self, numbers: Ints) -> None:
        """Take whole numbers of patterns; their places are free."""
        for pattern in np.repeat(np.arange(len(numbers)), numbers).tolist():
            for place, at in enumerate(self.patterns.of_class[pattern].tolist()):
                if at != NONE:
                    self.free[at].append((float(self.patterns.rps[pattern, place]), len(self.gpus), place))
            self.gpus.append(pattern)
        for free in self.free:
            free.sort()

    def _serve(self, demands: Sequence[Demand], mix: Mix, nearest: bool) -> None:
        """Give replica sets of free places to workloads, as often as the program uses them, rounded down, or to the
        ``nearest`` whole number.
        """
        by_range: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
        for one, many in mix.replica_sets:
            by_range[one.demand][one.rows] += int(many + (0.5 if nearest else SOLVER))
        for at, demand in enumerate(demands):
            left, start = list[Waiting](), 0
            for which, end in enumerate(demand.ends):
                waiting, start = self.left[at][start:end], end
                for rows, many in by_range[demand.number + which].items():
                    levels = [float(demand.levels[row - demand.first]) for row in rows]
                    for _ in range(many):
                        if not waiting or not self._placed(at, *waiting[-1], levels):
                            break
                        waiting.pop()
                left += waiting
            self.left[at] = left if demand.ends else self.left[at]

    def _placed(self, at: int, rate_rps: float, workload: int, levels: Sequence[float]) -> bool:
        """Give free places to a workload of a class: one for each level, the last only as large as needed. Return
        whether there were such places.
        """
        free, taken, total_rps = self.free[at], list[Place](), 0.0
        for level in (*levels[:-1], 0.0):
            wanted_rps = level or rate_rps - total_rps
            where = bisect_left(free, (wanted_rps * (1 - DUST),))
            if where == len(free):
                for one in taken:
                    insort(free, one)
                return False
            taken.append(free.pop(where))
            total_rps += taken[-1][0]
            if total_rps >= rate_rps * (1 - DUST):
                break
        for rps, gpu, place in taken:
            self.served[gpu].append((place, workload, rate_rps * min(rps / total_rps, 1.0)))
        return True


def _rounded(numbers: Floats, part: float) -> Ints:
    """Numbers of patterns, rounded down. Then those with the largest fractions are rounded up: as many as the fraction
    ``part`` of the sum of all fractions, rounded up.
    """
    whole = np.floor(numbers + SOLVER).astype(int)
    fractions = np.maximum(numbers - whole, 0.0)
    up = np.argsort(-fractions, kind="stable")[: math.ceil(part * fractions.sum())]
    whole[up[fractions[up] > SOLVER]] += 1
    return whole

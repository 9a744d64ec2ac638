"""Plans for many workloads under interference: whole numbers of patterns, and workloads in their places.

A place is where one replica of a pattern runs. The linear program (`program`) tells how often each pattern and each
replica set is used. Whole numbers of patterns are taken, and workloads get replica sets of their places. Workloads and
places that are left are planned again. The last few workloads are left to other methods.

The patterns are for classes at their shortest SLOs.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import padded
from provision.formulations.pricing.mps.rate_lists import small_patterns
from provision.formulations.pricing.mps.rate_points import running_at
from provision.formulations.pricing.mps.schedule import SCHEDULE as PRICING
from provision.formulations.pricing.oracle import replica_of
from provision.formulations.search.problem import Problem
from provision.formulations.values.classes import WorkloadClass
from provision.formulations.values.nodes import ValueNodes, node_rates
from provision.formulations.values.patterns import Patterns
from provision.formulations.values.program import Cell, ReplicaSet, ValueProgram, cells_of
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST, FORGIVEN, SOLVER
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

Place = tuple[float, int, int]
"""A place: the requests/s that its replica can carry, the index of the GPU, and the place in the pattern."""


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
    most_rps
        (classes, files) the most requests/s of a replica; 0 where it cannot run.
    left
        For each class, the workloads that have no replicas yet.
    value
        The value of the first program, in multiples of the dearest GPU's price.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass], ranges: int) -> None:
        self.instance, self.ranges, self.value = instance, ranges, 0.0
        self.problem = problem = Problem(instance, [one.group(longest=False) for one in classes])
        self.patterns = known = Patterns(problem, 1 - FORGIVEN)
        for file, points in enumerate(known.points):
            known.add(file, small_patterns(points, PRICING.small, PRICING.listed))
        self.most_rps, alone = np.zeros((len(classes), len(known.points))), known.alone
        np.maximum.at(self.most_rps, (known.of_class[alone, 0], known.file[alone]), known.rps[alone, 0])
        self.left = [one.only(np.full(len(one.members), rps.any())) for one, rps in zip(classes, self.most_rps,
                                                                                       strict=True)]
        self.free: list[list[Place]] = [[] for _ in classes]
        self.gpus: list[int] = []
        self.served: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)

    def run(self, until: Deadline, below: float = math.inf) -> None:
        """Plan the rates that are left, pass by pass, unless the first program's value is not ``below`` some value. The
        first pass is made even if the deadline is over.

        A pass takes whole numbers of patterns and replica sets, rounded down. The next passes also round up those of
        the largest fractions: their places stay free for the workloads that are left.
        """
        turn, part = 0, 0.0
        while (waiting := sum(len(one.members) for one in self.left)) and not (turn and until.over):
            program = self.program()
            if program.priced(until, SCHEDULE.quick, SCHEDULE.few, SCHEDULE.over if turn else SCHEDULE.gain) is None:
                return
            self.value = self.value or program.value
            if self.value >= below:
                return
            numbers, sets = program.used()
            taken = _rounded(numbers, part)
            self._take(taken)
            self._serve(program.cells, sets, part > 0)
            stuck = sum(len(one.members) for one in self.left) == waiting
            if stuck and part and not taken.any():
                return
            part = SCHEDULE.dive if turn or stuck else 0.0
            turn += 1

    def planned(self) -> list[PlannedGpu]:
        """The GPUs that carry workloads."""
        found = []
        for gpu, served in sorted(self.served.items()):
            slice_type = self.patterns.slice_types[self.patterns.file[self.gpus[gpu]]]
            entry = self.instance.fleet[self.problem.segments.slice_types[slice_type].entry]
            replicas = [self._replica(self.gpus[gpu], *one) for one in sorted(served)]
            found.append(PlannedGpu(gpu=entry.gpu, mig=entry.partitioned,
                                    slices=(Slice(profile=WHOLE, start=0, replicas=tuple(replicas)),)))
        return found

    def _replica(self, pattern: int, place: int, workload: int, rate_rps: float) -> Replica:
        """The replica at a place of a pattern, for a workload of its class."""
        points, at = self.patterns.points[self.patterns.file[pattern]], self.patterns.members[pattern, place]
        return replica_of(self.instance, workload, running_at(points, at), rate_rps)

    def program(self) -> ValueProgram:
        """The program for the workloads that are left, in which the rates of cells are levels."""
        every = np.arange(len(self.left))
        steps = np.ones(len(every), bool)
        cells = cells_of(self.left, every, np.zeros(len(every), int), self.ranges, ~steps, highest=True)
        levels = [self._levels(most_rps[most_rps > 0], np.array([one.rate_rps for one in cells if one.of_class == at]))
                  for at, most_rps in enumerate(self.most_rps)]
        nodes = ValueNodes(every, np.ones(len(every)), padded(levels), steps, 1)
        spare = np.zeros(nodes.shape)
        for at, free in enumerate(self.free):
            rps = np.array([rps for rps, *_ in free])
            np.add.at(spare[at], np.searchsorted(nodes.levels[at], rps * (1 + DUST), "right") - 1, 1)
        return ValueProgram(self.patterns, np.zeros(0, int), nodes, cells, nodes.levels.ravel(), spare.ravel())

    @staticmethod
    def _levels(most_rps: Floats, rates_rps: Floats) -> Floats:
        """The levels of a class, ascending from 0, in requests/s, up to the most that counts.

        Parameters
        ----------
        most_rps
            The most that a replica of the class carries on each GPU type that serves it.
        rates_rps
            The rates of its cells.
        """
        if not len(rates_rps):
            return np.array([0.0, 1.0])
        top = float(min(most_rps.max(), rates_rps.max()))
        asked = np.concatenate([rates_rps, most_rps])
        found = np.union1d(node_rates(asked, top, False, SCHEDULE.levels, SCHEDULE.lowest),
                           asked[asked <= top * (1 + DUST)])
        return found[np.append(np.diff(found) > found[1:] * 1e-3, True)]

    def _take(self, numbers: Ints) -> None:
        """Take whole numbers of patterns; their places are free."""
        for pattern in np.repeat(np.arange(len(numbers)), numbers).tolist():
            for place, at in enumerate(self.patterns.of_class[pattern].tolist()):
                if at != NONE:
                    self.free[at].append((float(self.patterns.rps[pattern, place]), len(self.gpus), place))
            self.gpus.append(pattern)
        for free in self.free:
            free.sort()

    def _serve(self, cells: Sequence[Cell], sets: Sequence[ReplicaSet], nearest: bool) -> None:
        """Give replica sets of free places to workloads, as often as the program uses them, rounded down, or to the
        ``nearest`` whole number.
        """
        members = np.concatenate([one.members for one in self.left]).tolist()
        rates_rps = np.concatenate([one.rates_rps for one in self.left]).tolist()
        waiting, left = [one.workloads.tolist()[::-1] for one in cells], np.ones(len(members), bool)
        for one in sets:
            for _ in range(int(one.many + (0.5 if nearest else SOLVER))):
                several = waiting[one.cell]
                if not several or not self._placed(cells[one.cell].of_class, rates_rps[several[-1]],
                                                   members[several[-1]], one.rps):
                    break
                left[several.pop()] = False
        ends = np.cumsum([len(one.members) for one in self.left])[:-1]
        self.left = [one.only(kept) for one, kept in zip(self.left, np.split(left, ends), strict=True)]

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

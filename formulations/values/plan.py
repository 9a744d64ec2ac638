"""Plans for many workloads under interference: whole numbers of patterns, whose places the workloads get.

Every workload is divided into parts with one replica each (`search.problem`). A place is where one replica of a
pattern runs. The linear program (`program`) tells how often each pattern is used so that every part has a place. The
whole parts of these numbers are fixed, and an integer program chooses the rest. If it takes too long, the numbers with
the largest fractions are rounded up and fixed, and the linear program is solved again for the rest (diving; Sadykov et
al. 2019). Where parts have too many different rates for one program, rates are rounded up, numbers of patterns are
rounded down, and the parts that get no place are planned by the next program. The last few workloads are left to other
methods.

The patterns are for classes at their shortest SLOs.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import padded
from provision.formulations.pricing.mps.rate_points import small_patterns
from provision.formulations.pricing.mps.tables import running_at
from provision.formulations.pricing.oracle import replica_of
from provision.formulations.pricing.schedule import SCHEDULE as PRICING
from provision.formulations.search.problem import Group, Problem, in_parts
from provision.formulations.values.nodes import ValueNodes, WorkloadClass, bins, classes_of
from provision.formulations.values.program import Patterns, ValueProgram
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST, FORGIVEN, SOLVER, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance


class PartsPlan:
    """A plan of most parts of workloads.

    Parameters
    ----------
    instance
        The problem.
    groups
        Groups of parts, which have one replica each.
    below
        The price that the plan must be below, in units of the Problem.

    Attributes
    ----------
    left
        For each class, the parts that have no place yet.
    served
        For each GPU, the place, the workload and the requests/s of each replica; ``gpus`` has its pattern.
    """

    def __init__(self, instance: Instance, groups: Sequence[Group], below: float = math.inf) -> None:
        self.instance, self.below = instance, below
        members = np.concatenate([group.members for group in groups])
        rates_rps = np.repeat([group.rate_rps for group in groups], [len(group.members) for group in groups])
        most = min(SCHEDULE.classes, max(len(members) // SCHEDULE.members, 1))
        classes = classes_of(instance, members, rates_rps, most)
        self.problem = Problem(instance, [one.group(longest=False) for one in classes])
        self.patterns = known = Patterns(self.problem, 1 - FORGIVEN)
        for file, points in enumerate(known.points):
            known.add(file, small_patterns(points, PRICING.small, PRICING.divided))
        most_rps, alone = np.zeros(len(classes)), known.alone
        np.maximum.at(most_rps, known.of_class[alone, 0], known.rps[alone, 0])
        self.left = [one.only(one.rates_rps <= rps * (1 + DUST)) for one, rps in zip(classes, most_rps, strict=True)]
        self.gpus: list[int] = []
        self.served: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)

    def run(self, until: Deadline) -> None:
        """Plan the parts that are left, program by program, until a deadline, unless the first program proves that its
        patterns make no plan of a price ``below``. The first program is always solved.
        """
        turn = 0
        while (waiting := sum(len(one.members) for one in self.left)) and not (turn and until.over):
            levels = [self._levels(one) for one in self.left]
            exact = all(len(np.unique(one.rates_rps)) < len(several) for one, several in zip(
                self.left, levels, strict=True))
            numbers = self._numbers(levels, exact, until)
            if numbers is None:
                return
            self._serve(numbers)
            if exact or sum(len(one.members) for one in self.left) == waiting:
                return
            turn += 1

    def _levels(self, parts: WorkloadClass) -> Floats:
        """The levels of a class, ascending from 0, in requests/s: all rates of its parts, or the highest rate in each
        of some ranges.
        """
        if not len(parts.members):
            return np.array([0.0, 1.0])
        range_of = bins(parts.rates_rps, max(SCHEDULE.rows // len(self.left), 1))
        top = np.zeros(range_of.max() + 1)
        np.maximum.at(top, range_of, parts.rates_rps)
        return np.append(0.0, top[top > 0])

    def _numbers(self, levels: Sequence[Floats], exact: bool, until: Deadline) -> Ints | None:
        """(patterns,) whole numbers of patterns, rounded down unless ``exact``; None if the program has no solution."""
        every = np.arange(len(levels))
        nodes = ValueNodes(every, np.ones(len(every)), padded(levels), np.ones(len(every), bool), 1)
        wanted = np.zeros(nodes.shape)
        for at, parts in enumerate(self.left):
            np.add.at(wanted[at], np.searchsorted(levels[at], parts.rates_rps * (1 - DUST)), 1)
        program = ValueProgram(self.patterns, np.zeros(0, int), nodes, [], nodes.levels.ravel(), wanted.ravel())
        while program.priced(until, SCHEDULE.quick, SCHEDULE.few, SCHEDULE.gain) is not None:
            if not self.gpus and math.ceil(program.value * self.problem.dearest * (1 - TOLERANCE)) >= self.below:
                return None
            numbers = program.used()
            whole = np.floor(numbers + SOLVER).astype(int)
            rest = np.maximum(numbers - whole, 0.0)
            up = np.argsort(-rest, kind="stable")[: math.ceil(SCHEDULE.dive * rest.sum())]
            up = up[rest[up] > SOLVER]
            if not exact or not len(up) or until.over:
                return whole
            program.fix(whole)
            found = program.integral(min(SCHEDULE.whole_s, until.left_s))
            if found is not None:
                return found
            whole[up] += 1
            program.fix(whole)
        return None

    def _serve(self, numbers: Ints) -> None:
        """Take whole numbers of patterns. Their places get parts, the places with the highest requests/s first, each
        the largest part that it carries.
        """
        places: list[list[tuple[float, int, int]]] = [[] for _ in self.left]
        for pattern in np.repeat(np.arange(len(numbers)), numbers).tolist():
            for place, at in enumerate(self.patterns.of_class[pattern].tolist()):
                if at != NONE:
                    places[at].append((float(self.patterns.rps[pattern, place]), len(self.gpus), place))
            self.gpus.append(pattern)
        for at, parts in enumerate(self.left):
            waiting = list(zip(parts.rates_rps.tolist(), parts.members.tolist(), strict=True))
            taken, first = np.zeros(len(waiting), bool), 0
            for rps, gpu, place in sorted(places[at], reverse=True):
                while first < len(waiting) and waiting[first][0] > rps * (1 + DUST):
                    first += 1
                if first == len(waiting):
                    break
                rate_rps, workload = waiting[first]
                self.served[gpu].append((place, workload, rate_rps))
                taken[first], first = True, first + 1
            self.left[at] = parts.only(~taken)

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
        return replica_of(self.instance, workload, running_at(points.gpu, points.at[at]), rate_rps)


def plan_of_parts(instance: Instance, until: Deadline, value: float | None = None) -> list[PlannedGpu]:
    """GPUs that carry most of the workloads of an instance; none if no workload can be divided into parts, or if they
    would not be better than a plan of the given ``value`` of the objective.
    """
    problem = Problem(instance)
    groups = [one for one in in_parts(problem) if one.most == 1 and math.isinf(one.cap_rps) and one.rate_rps > 0]
    if not groups:
        return []
    found = PartsPlan(instance, groups, math.inf if value is None else round(value / problem.unit))
    found.run(until)
    return found.planned()

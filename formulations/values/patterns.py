"""The patterns that plans for many workloads are made of, as arrays."""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.rate_lists import small_patterns
from provision.formulations.pricing.mps.rate_points import RatePoints, together_rps
from provision.formulations.pricing.mps.rates import LISTED, SMALL
from provision.formulations.search.problem import Problem
from provision.formulations.values.bound import points_of
from provision.formulations.values.classes import WorkloadClass
from provision.formulations.values.climb import NONE, PlaceValues, Table, climbed, table_of
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import FORGIVEN, SOLVER
from provision.models.performance.sm_shares import shares_of
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance


class PlanPatterns:
    """Patterns of all GPU types, for classes of workloads at their shortest SLOs.

    Attributes
    ----------
    pool
        (patterns,) the index of the GPU type, in the order of the Problem's pools that can be shared.
    members, of_class, rps
        (patterns, places) the operating point of each replica, its class, and the requests/s that it can carry; NONE,
        NONE and 0 at empty places.
    price
        (GPU types,) prices in multiples of the dearest GPU's.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass]) -> None:
        self.instance, self.classes = instance, classes
        self.problem = problem = Problem(instance, [one.group(longest=False) for one in classes])
        pool_of = {slice_type: pool for pool in problem.pools for slice_type in pool.slice_types}
        pairs = points_of(problem)
        self.points: list[RatePoints] = [points for _, points in pairs]
        self.tables: list[Table] = [table_of(one) for one in self.points]
        self.pools = [pool_of[slice_type] for slice_type, _ in pairs]
        self.price = np.array([pool.worth / problem.dearest for pool in self.pools])
        self.pool = np.zeros(0, int)
        self.members = self.of_class = np.zeros((0, SCHEDULE.together), int)
        self.rps = np.zeros((0, SCHEDULE.together))
        for at, points in enumerate(self.points):
            if len(points.units):
                self.add(at, small_patterns(points, SMALL, LISTED).members)

    def add(self, pool: int, members: Ints) -> None:
        """Add patterns of a GPU type, (patterns, places) as operating points."""
        members = np.pad(members, ((0, 0), (0, SCHEDULE.together - members.shape[1])), constant_values=NONE)
        there, points = members != NONE, self.points[pool]
        self.pool = np.append(self.pool, np.full(len(members), pool))
        self.members = np.concatenate([self.members, members])
        self.of_class = np.concatenate([self.of_class, np.where(there, points.group[members], NONE)])
        self.rps = np.concatenate([self.rps, together_rps(points, np.ascontiguousarray(members)) * (1 - FORGIVEN)])

    def improve(self, starts: Ints, values: PlaceValues, draw: np.random.Generator) -> int:
        """Add the patterns that are worth more than their GPU, found from some patterns by local search; return how
        many there are.
        """
        before = len(self.pool)
        for pool, price in enumerate(self.price.tolist()):
            own = self.members[starts[self.pool[starts] == pool]]
            if len(own):
                found, worth = climbed(self.points[pool], self.tables[pool], values, own, draw)
                self.add(pool, np.unique(found[worth > price * (1 + SOLVER)], axis=0))
        return len(self.pool) - before

    def alone(self) -> Bools:
        """(patterns,) whether a pattern has a single replica."""
        return (self.of_class != NONE).sum(axis=1) == 1

    def most_rps(self, at: int) -> Floats:
        """(GPU types that serve it,) the most requests/s that a replica of a class carries."""
        rps = [self.rps[(self.pool == pool) & (self.of_class[:, 0] == at) & self.alone(), 0]
               for pool in range(len(self.pools))]
        return np.array([one.max() for one in rps if len(one)])

    def replica(self, pattern: int, place: int, workload: int, rate_rps: float) -> Replica:
        """The replica at a place, for a workload of its class."""
        points, at = self.points[self.pool[pattern]], self.members[pattern, place]
        one, share = self.instance.workloads[workload], shares_of(points.gpu.unit_share)[points.units[at] - 1]
        return Replica(workload=one.name, batch=int(points.batch[at]), processes=1, sm_share=float(share),
                       rate_rps=rate_rps, model=one.named(int(points.model[at])))

"""Exact maximum throughput where each workload has one replica: every set of workloads that fits a slice is a column.

At first, the value of a set is an upper bound on its throughput. An integer program chooses sets. A search then finds
the best operating points of the chosen sets, which lowers their bounds, and the integer program is solved again. The
search ends when the throughput of every chosen set equals its value.
"""

from collections.abc import Iterator

import numpy as np

from provision.formulations.linear.restricted import Known
from provision.formulations.master.fullest import Filled, FullFleet
from provision.formulations.master.rates.plans import Column
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import GENEROUS, Member
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SOLVER, TOLERANCE

UNKNOWN = Running(0, 1, 1, 1.0)
"""A placeholder where the operating point of a replica is not needed."""

Place = tuple[int, tuple[int, ...]]
"""A set of replicas on one slice: the slice type, and the groups of the replicas in ascending order."""


def knows_sets(fleet: FullFleet) -> bool:
    """Whether every slice type has one oracle that lists the sets of workloads, with one replica each, that share a
    slice.
    """
    return 0 < len(fleet.oracles) == len(dict(fleet.oracles)) and all(one.by_sets for _, one in fleet.oracles)


class EverySet:
    """The sets of workloads of a FullFleet, if each workload has one replica.

    Parameters
    ----------
    fleet
        The FullFleet, for which ``knows_sets`` must hold. The search tightens its bound.

    Attributes
    ----------
    impossible
        Whether it is proven that the replicas of all workloads do not fit on the fleet.
    """

    def __init__(self, fleet: FullFleet) -> None:
        self.fleet, self.impossible = fleet, False
        self.sets = dict(fleet.oracles)
        self.held: dict[Place, Column] = {
            (one.slice_type, (one.members[0].group,)): one for one in fleet.columns if len(one.members) == 1}
        self.effort: dict[Place, int] = {}
        self.places: list[Place] = []
        self.most = np.zeros(0)

    def listed(self, until: Deadline) -> bool:
        """List all sets until a deadline; return whether the list is complete. A further call continues the list."""
        every = {slice_type: one.every(until) for slice_type, one in self.sets.items()}
        if None in every.values():
            return False
        worth: dict[Place, float] = {
            (slice_type, (at,)): float(self.fleet.single_rps[at, slice_type]) * GENEROUS
            for at, slice_type in np.argwhere(self.fleet.single_rps > 0).tolist()}
        shared = {(slice_type, groups): self.sets[slice_type].best(groups, 0)[0]
                  for slice_type, several in every.items() for groups in several or ()}
        worth |= shared
        self.places, self.most, self.effort = list(worth), np.array(list(worth.values())), dict.fromkeys(shared, 0)
        return True

    def rounds(self, until: Deadline) -> Iterator[Filled | None]:
        """Yield solutions until a deadline or the optimum. A solution is None if it uses a set without operating
        points.
        """
        rates = [group.rate_rps for group in self.fleet.problem.groups]
        known, many = Known[Column](), len(self.places)
        for slice_type, groups in self.places:
            members = tuple(Member(one, UNKNOWN) for one in groups)
            column = Column(slice_type, members, tuple(rates[one] for one in groups))
            known.add(column, self.fleet.entries(column))
        sets, *others = self.fleet.columns_of(known)
        while not until.over:
            worth = sets._replace(cost=-self.most, most=np.where(self.most > 0, np.inf, 0.0))
            found = self.fleet.master.integral([worth, *others], until.left_s)
            self.impossible = found.status == "infeasible"
            if found.x is None:
                return
            self.fleet.bound = min(self.fleet.bound, SOLVER * max(1.0, -found.bound) - found.bound)
            settled = [self._settle(at, until) for at in np.flatnonzero(np.rint(found.x[:many])).tolist()]
            yield self.fleet.filled(found.x, [self.held.get(place) for place in self.places])
            if all(settled):
                return

    def _settle(self, at: int, until: Deadline) -> bool:
        """Search for the best operating points of a set, each time with more effort, until they carry the most that is
        possible or the time is over. Return whether nothing was searched.
        """
        slice_type, groups = place = self.places[at]
        known, hardest = True, SCHEDULE.set_effort if place in self.effort else 0
        while self.effort.get(place, 0) < hardest and not until.over:
            self.effort[place] += 1
            self.most[at], members = self.sets[slice_type].best(groups, self.effort[place])
            held = None if members is None else self.fleet.judge.held(slice_type, members)
            known = False
            if held is not None:
                self.held[place] = held
                if sum(held.rps) >= self.most[at] * (1 - TOLERANCE):
                    self.effort[place] = hardest
        return known

"""Exact bounds on throughput where each workload has one replica: every set of workloads that fits a slice is a column.

The value of a set is an upper bound on its throughput. An integer program chooses sets, which proves a bound on all
plans. Then the best operating points of the chosen sets are searched, which lowers their values. The search ends when
the value of every chosen set is what it carries.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from provision.formulations.linear.restricted import Known
from provision.formulations.master.fullest import FullFleet
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


def bounds_of_sets(fleet: FullFleet, until: Deadline) -> Iterator[float]:
    """Tighten the bound of a FullFleet and add the patterns of sets to it; yield the bound after every program.

    It does nothing unless each slice type has one oracle that lists the sets of workloads, with one replica each, that
    share a slice before the deadline.
    """
    oracles, settled = dict(fleet.oracles), SCHEDULE.set_effort + 1
    every = {at: one.every(until) for at, one in oracles.items() if one.by_sets}
    if not every or len(every) < len(fleet.oracles) or None in every.values():
        return
    effort, most = Counter[Place](), dict[Place, float]()
    for at, slice_type in np.argwhere(fleet.single_rps > 0).tolist():
        most[slice_type, (at,)], effort[slice_type, (at,)] = float(fleet.single_rps[at, slice_type]) * GENEROUS, settled

    def search(place: Place) -> None:
        """Search for the best operating points of a set with the effort that is its turn."""
        slice_type, groups = place
        most[place], members = oracles[slice_type].best(groups, effort[place])
        held = None if members is None else fleet.add(slice_type, members)
        exact = held is not None and sum(held.rps) >= most[place] * (1 - TOLERANCE)
        effort[place] = settled if exact else effort[place] + 1

    for place in [(slice_type, groups) for slice_type, several in every.items() for groups in several or ()]:
        search(place)
    sets, rates = Known[Column](), [group.rate_rps for group in fleet.problem.groups]
    for slice_type, groups in most:
        column = Column(slice_type, tuple(Member(one, UNKNOWN) for one in groups), tuple(rates[one] for one in groups))
        sets.add(column, fleet.entries(column))
    columns, *others = fleet.columns_of(sets)
    searched = list(most)
    while searched and not until.over:
        worth = np.array(list(most.values()))
        found = fleet.master.integral([columns._replace(cost=-worth, most=np.where(worth > 0, np.inf, 0.0)), *others],
                                      until.left_s)
        if found.x is None:
            return
        fleet.bound = min(fleet.bound, SOLVER * max(1.0, -found.bound) - found.bound)
        yield fleet.bound
        chosen = [place for place, times in zip(most, found.x, strict=False) if times > SCHEDULE.half]
        searched = [place for place in chosen if effort[place] < settled]
        for place in searched:
            search(place)

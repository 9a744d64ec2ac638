"""Sets of replicas, one of each workload, that share a whole GPU under iGniter's model, and their highest throughput.
"""

import numpy as np

from provision.formulations.pricing.listing import TooManyError
from provision.formulations.pricing.mps.best_points import NOTHING, BestPoints, most_throughput
from provision.formulations.pricing.mps.choices import Choices, choices_of
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import Member, Members
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.operating_points import PerformanceData
from provision.models.performance.sm_shares import shares_of

MOST_SETS = 20_000
"""The most sets that are listed."""
MOST_NODES = (1, 200, 2000, 20_000)
"""The nodes of the search for a set's best operating points, by effort. A few hundred nearly always prove the best."""

LADDER = (1, 5, 25, 125, 625, MOST_NODES[-1])
"""The nodes of the successive searches for any feasible operating points of a set."""


class InterferingSets:
    """The sets that can share a whole GPU of one type.

    Parameters
    ----------
    choices
        The operating points of all groups.
    members
        (groups,) the number of workloads of each group.
    unit_share
        The SM share of a unit.
    """

    hardest = len(MOST_NODES) - 1

    def __init__(self, choices: Choices, members: list[int], unit_share: float) -> None:
        self.choices, self.members, self.shares = choices, members, shares_of(unit_share)
        self.known: dict[tuple[int, ...], tuple[BestPoints, int]] = {}
        self.grown: list[tuple[int, ...]] = [()]
        self.can_be, self.done = set(self.grown), 0
        self.failing: set[tuple[int, ...]] = set()

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """See ``RateOracle.every``. Sets grow by one replica at a time, because all subsets of a feasible set are
        feasible.
        """
        while self.done < len(self.grown) <= MOST_SETS and not until.over:
            groups = self.grown[self.done]
            for one in range(groups[-1] if groups else 0, len(self.members)):
                larger = (*groups, one)
                if groups.count(one) < self.members[one] and self._can_be(larger):
                    self.grown.append(larger)
                    self.can_be.add(larger)
            self.done += 1
        return self.grown[1:] if self.done == len(self.grown) else None

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """See ``RateOracle.best``."""
        if groups not in self.known or self.known[groups][1] < effort:
            self.known[groups] = most_throughput(self.choices, np.array(groups), MOST_NODES[effort]), effort
        found = self.known[groups][0]
        if found.value <= NOTHING:
            return found.bound, None
        return found.bound, self._members(groups, found)

    def _members(self, groups: tuple[int, ...], found: BestPoints) -> Members:
        points = zip(groups, found.points.tolist(), strict=True)
        return tuple(Member(one, Running(0, batch + 1, 1, float(self.shares[units]))) for one, (units, batch) in points)

    def holds(self, groups: tuple[int, ...]) -> Members | None:
        """A feasible pattern of a set. None if there is none, or if a subset is already known to have none.

        Raises
        ------
        TooManyError
            If the longest search neither finds a pattern nor proves that there is none.
        """
        if any(groups[:at] + groups[at + 1 :] in self.failing for at in range(len(groups))):
            self.failing.add(groups)
            return None
        for nodes in LADDER:
            found = most_throughput(self.choices, np.array(groups), nodes)
            if found.value > NOTHING:
                return self._members(groups, found)
            if found.bound <= NOTHING:
                self.failing.add(groups)
                return None
        raise TooManyError

    def _can_be(self, groups: tuple[int, ...]) -> bool:
        """Whether a set can share a GPU. The answers for all its subsets with one replica less must be known."""
        smaller = (groups[:at] + groups[at + 1 :] for at in range(len(groups)))
        return all(one in self.can_be for one in smaller) and self.best(groups, 0)[0] > NOTHING


def sets(problem: Problem, slice_type: SliceType, data: PerformanceData) -> InterferingSets | None:
    """The sets that can share a slice type; None if workloads have several models, or the data is not of kind igniter.
    """
    groups, instance = problem.groups, problem.instance
    varied = any(len(one.models) > 1 for one in groups)
    if not isinstance(data, IgniterProfiles) or slice_type.profile != WHOLE or varied:
        return None
    demands = [(one.models, one.slo_ms * instance.policy.part_of_slo, one.rate_rps) for one in groups]
    choices = choices_of(instance, data.gpu, demands)
    return InterferingSets(choices, [len(one.members) for one in groups], data.hardware.unit_share)

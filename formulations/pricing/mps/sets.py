"""Sets of demands, with a replica for each, that share a whole GPU under interference."""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.listing import TooManyError
from provision.formulations.pricing.mps.kernels import NONE, UNKNOWN, arrange
from provision.formulations.pricing.mps.rate_points import running_at
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.tables import Demand, PointTables
from provision.formulations.pricing.oracle import Running
from provision.formulations.search.problem import Group
from provision.formulations.search.roles import Role
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance


def demands_of(instance: Instance, those: Sequence[Role] | Sequence[Group]) -> list[Demand]:
    """The models, the latency budget (ms) and the rate of each role or group, as PointTables need them."""
    return [(one.models, one.slo_ms * instance.policy.part_of_slo, one.rate_rps) for one in those]


def feasible_sets(tables: PointTables, copies: Sequence[int], until: Deadline) -> list[tuple[int, ...]] | None:
    """All sets of demands that can share the GPU, each in ascending order. Some of them may be feasible
    only within the limits of bounds, which are looser than those of plans.

    None if there are too many sets, or if the time is over. Sets grow by one replica at a time, because all subsets of
    a feasible set are feasible. ``copies`` (demands,) are the most replicas of each demand.
    """
    grown: list[tuple[int, ...]] = [()]
    known = set(grown)
    for demands in grown:
        if len(grown) > SCHEDULE.sets or until.over:
            return None
        for one in range(demands[-1] if demands else 0, len(copies)):
            larger = (*demands, one)
            smaller = (larger[:at] + larger[at + 1 :] for at in range(len(larger)))
            if demands.count(one) < copies[one] and known.issuperset(smaller) and _arranged(tables, larger)[0] != NONE:
                grown.append(larger)
                known.add(larger)
    return grown[1:]


def runs_of(tables: PointTables, demands: Sequence[int], proven: bool = False) -> list[Running] | None:
    """Operating points of a set, in the order of its demands; None if none are found.

    Raises
    ------
    TooManyError
        If no points are found, and this is to be ``proven``, but it is not.
    """
    units, points = _arranged(tables, demands)
    if proven and units == UNKNOWN:
        raise TooManyError
    return None if units <= 0 else [running_at(tables, at) for at in points]  # NONE or UNKNOWN


def _arranged(tables: PointTables, demands: Sequence[int]) -> tuple[int, Ints]:
    """The units of a set and its operating points; see ``arrange``."""
    units, points = np.zeros((2, len(demands)), int)
    return arrange(tables, np.array(demands), len(demands), units, points), points

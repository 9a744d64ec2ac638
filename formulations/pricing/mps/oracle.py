"""The pattern oracle of whole GPUs that replicas share under interference (iGniter's model, TPDS 2022).

Batch times do not depend on the routed rates, and a further neighbour never shortens them. So a pattern is valid if and
only if every replica keeps its SLO and can carry its role's rate beside the others.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.mps.kernels import arrange
from provision.formulations.pricing.mps.rate_points import running_at
from provision.formulations.pricing.mps.rates import interference_patterns
from provision.formulations.pricing.mps.roles import RolePricing
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.tables import Demand, PointTables, least_units, tables_of
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.rates import RateOracle
from provision.formulations.pricing.settings import Setting, role_ways
from provision.formulations.search.problem import Problem, Shareable
from provision.formulations.search.roles import Role
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class InterferenceOracle:
    """The patterns of whole GPUs of one type that replicas share under interference.

    Parameters
    ----------
    instance, entry, data
        The problem, the fleet entry of the GPUs, and the performance data of the GPU type: iGniter's coefficients, or a
        co-location file.
    roles
        All roles, ``hardest_first``.
    copies
        (roles,) the most replicas with each role in a pattern.
    """

    def __init__(self, instance: Instance, entry: FleetEntry, data: PerformanceFile, roles: Sequence[Role],
                 copies: NDArray[np.int64]) -> None:
        self.tables = tables_of(data, instance.shared_rule, demands_of(instance, roles))
        self.pricing = RolePricing(instance, data, self.tables, roles, copies)
        self.able = np.flatnonzero(self.tables.first[:, -1] > self.tables.first[:, 0])  # roles with operating points

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        return [(int(one),) for one in self.able]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        longer = SCHEDULE.roles._replace(nodes=SCHEDULE.roles.nodes * SCHEDULE.more**effort)
        patterns, found = self.pricing.priced(values, floor, longer)
        best = max(floor, found.value.max(initial=0.0))
        return Priced(patterns, max(found.most, floor), found.most <= best * (1 + SCHEDULE.roles.close) + 1)

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas; None if none are found."""
        return running(self.tables, pattern)


def running(tables: PointTables, pattern: Pattern) -> list[Running] | None:
    """The operating points of a pattern's replicas; None if none are found."""
    points, units = np.zeros((2, len(pattern)), int)
    if arrange(tables, np.array(pattern), len(pattern), units, points) <= 0:  # NONE or UNKNOWN
        return None
    return [running_at(tables, at) for at in points]


def demands_of(instance: Instance, roles: Sequence[Role]) -> list[Demand]:
    """The models, the latency budget (ms) and the rate of each role, as PointTables need them."""
    return [(role.models, role.slo_ms * instance.policy.part_of_slo, role.rate_rps) for role in roles]


def interference_settings(problem: Problem, shared: Shareable, until: Deadline) -> list[Setting]:
    """The setting of a whole GPU, with a way for every role that the GPU can serve; an empty list for other slices, and
    without roles. Raises TimeIsUpError at the deadline.
    """
    if problem.segments.slice_types[shared.slice_type].profile != WHOLE or not problem.roles:
        return []
    tables = tables_of(shared.data, problem.instance.shared_rule, demands_of(problem.instance, problem.roles),
                       until=until)
    units = least_units(tables)
    shares = {at: float(units[at]) / tables.limit for at in np.flatnonzero(units <= tables.limit).tolist()}
    return [Setting(role_ways(problem, shares), processes=tables.most, points=tables, running=partial(running, tables))]


def interference_oracle(instance: Instance, entry: FleetEntry, profile: str, data: PerformanceFile,
                        roles: Sequence[Role], copies: NDArray[np.int64]) -> InterferenceOracle | None:
    """The oracle of a slice type; None unless the slice is a whole GPU."""
    return InterferenceOracle(instance, entry, data, roles, copies) if profile == WHOLE else None


def interference_rates(problem: Problem, slice_type: SliceType, data: IgniterProfiles | Colocation, until: Deadline
                       ) -> RateOracle | None:
    """The RateOracle of a slice type; None if it has none. Making it is quick, so the deadline is ignored."""
    return interference_patterns(problem, slice_type, data)


oracle = WayOfSharing(interference_oracle, interference_rates, interference_settings)
"""The way of sharing: whole GPUs under MPS."""

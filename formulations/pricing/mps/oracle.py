"""The pattern oracle of whole GPUs that replicas share under interference (iGniter's model, TPDS 2022).

Batch times do not depend on the routed rates, and a further neighbour never shortens them. So the rate of a role is a
capacity: a pattern is valid if and only if every replica keeps its SLO and can carry its role's rate beside the others.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.mps.capacities import interference_capacities
from provision.formulations.pricing.mps.kernels import TRIES, arrange
from provision.formulations.pricing.mps.options import options_of
from provision.formulations.pricing.mps.pricing import hardened, search
from provision.formulations.pricing.mps.rates import interference_patterns
from provision.formulations.pricing.mps.tables import Demand, PointTables, least_units, tables_of
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.rates import RateOracle
from provision.formulations.pricing.settings import Setting, role_ways
from provision.formulations.search.problem import Problem, Shareable
from provision.formulations.search.roles import Role, dominance
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import shares_of
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

CELLS, MORE = 300, 3
"""The nodes that each thread opens in the quickest search, and the factor by which each further effort opens more
nodes.
"""
THREADS = 2
"""The number of threads that search in parallel. Patterns are divided among them by size (number of replicas)."""
MOST_FOUND = 20_000
"""The most patterns that one search returns."""


class InterferenceOracle:
    """The patterns of whole GPUs of one type that replicas share under interference.

    Parameters
    ----------
    instance, entry, data
        The problem, the fleet entry of the GPUs, and iGniter's coefficients of the GPU type.
    roles
        All roles, in ascending order of ``hardness``.
    copies
        (roles,) the most replicas with each role in a pattern.
    """

    def __init__(self, instance: Instance, entry: FleetEntry, data: PerformanceFile, roles: Sequence[Role],
                 copies: NDArray[np.int64]) -> None:
        demands = demands_of(instance, roles)
        self.tables = tables_of(data, instance.shared_rule, demands)
        self.options = options_of(self.tables, demands, copies)
        self.harder_first, self.harder = _next_harder(roles)
        self.able = np.flatnonzero(self.tables.first[:, -1] > self.tables.first[:, 0])

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        return [(int(one),) for one in self.able]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        with ThreadPoolExecutor(THREADS) as pool:
            parts = list(pool.map(lambda part: self._priced(values, floor, effort, part), range(THREADS)))
        most = max(part.most for part in parts)
        return Priced([pattern for part in parts for pattern in part.patterns], most,
                      any(part.exhaustive and part.most == most for part in parts))

    def _priced(self, values: NDArray[np.int64], floor: int, effort: int, part: int) -> Priced:
        """Find patterns of every THREADS-th size, beginning with size 1 + ``part``."""
        sizes = np.arange(1 + part, self.tables.most + 1, THREADS)
        found = search(self.tables, self.options, values, floor, CELLS * MORE**effort, MOST_FOUND, sizes)
        hardened(self.tables, found, self.harder_first, self.harder)
        rows = zip(found.members.tolist(), found.size.tolist(), strict=True)
        return Priced([tuple(sorted(members[:size])) for members, size in rows], int(found.most), found.exhaustive)

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas; None if none are found."""
        return running(self.tables, pattern)


def running(tables: PointTables, pattern: Pattern) -> list[Running] | None:
    """The operating points of a pattern's replicas; None if none are found."""
    points, units = np.zeros((2, len(pattern)), int)
    if arrange(tables, np.array(pattern), len(pattern), units, points, TRIES) <= 0:
        return None
    shares = shares_of(tables.gpu.unit_share)
    return [Running(int(tables.model[at]), int(tables.batch[at]), 1, float(shares[tables.units[at] - 1]))
            for at in points]


def demands_of(instance: Instance, roles: Sequence[Role]) -> list[Demand]:
    """The models, the latency budget (ms) and the rate of each role, as PointTables need them."""
    return [(role.models, role.slo_ms * instance.policy.part_of_slo, role.rate_rps) for role in roles]


def interference_settings(problem: Problem, shared: Shareable) -> list[Setting]:
    """The setting of a whole GPU, with a way for every role that the GPU can serve; an empty list for other slices, and
    without roles.
    """
    if problem.segments.slice_types[shared.slice_type].profile != WHOLE or not problem.roles:
        return []
    tables = tables_of(shared.data, problem.instance.shared_rule, demands_of(problem.instance, problem.roles))
    units = least_units(tables)
    shares = {at: float(units[at]) / tables.limit for at in np.flatnonzero(units <= tables.limit).tolist()}
    return [Setting(role_ways(problem, shares), processes=tables.most, points=tables, running=partial(running, tables))]


def interference_oracle(instance: Instance, entry: FleetEntry, profile: str, data: PerformanceFile,
                        roles: Sequence[Role], copies: NDArray[np.int64]) -> InterferenceOracle | None:
    """The oracle of a slice type; None unless the slice is a whole GPU."""
    return InterferenceOracle(instance, entry, data, roles, copies) if profile == WHOLE else None


def _next_harder(roles: Sequence[Role]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The next harder roles of each role: those of role r are the second array from ``first[r]`` up to ``first[r +
    1]``, where ``first`` (roles + 1,) is the first array.
    """
    harder, easier = dominance(roles)
    order = np.argsort(easier, kind="stable")
    return np.searchsorted(easier[order], np.arange(len(roles) + 1)), harder[order]


def interference_rates(problem: Problem, slice_type: SliceType, data: IgniterProfiles | Colocation, until: Deadline
                       ) -> RateOracle | None:
    """The RateOracle of a slice type; None if it has none. It lists few patterns, whatever the deadline."""
    if problem.fills:
        return interference_capacities(problem, slice_type, data)
    return interference_patterns(problem, slice_type, data)


oracle = WayOfSharing(interference_oracle, interference_rates, interference_settings)
"""The way of sharing: whole GPUs under MPS."""

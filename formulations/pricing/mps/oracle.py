"""The pattern oracle of whole GPUs that replicas share under interference (iGniter's model, TPDS 2022).

Batch times do not depend on the routed rates, and a further neighbour never shortens them. So the rate of a role is a
capacity: a pattern is valid if and only if every replica keeps its SLO and can carry its role's rate beside the others.

For objective max_throughput, a replica carries at most the rate that it would have beside neighbours with the least
demands.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.level_capacities import Best, LevelCapacities, Table
from provision.formulations.pricing.mps.kernels import TRIES, arrange
from provision.formulations.pricing.mps.laws import GpuLaw, Grid, law_of, slowed_ms
from provision.formulations.pricing.mps.rates import interference_patterns
from provision.formulations.pricing.mps.roles import RolePricing
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.tables import Demand, PointTables, least_units, tables_of
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.rates import GENEROUS, RateOracle
from provision.formulations.pricing.settings import Setting, role_ways
from provision.formulations.pricing.throughput_patterns import ThroughputPatterns
from provision.formulations.search.problem import Group, Problem, Shareable
from provision.formulations.search.roles import Role
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import shares_of
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 29)
"""A level is a range of the number of replicas. These are the first numbers of the ranges."""

Floats = NDArray[np.float64]


def capacities(instance: Instance, entry: FleetEntry, profile: str, data: IgniterProfiles | Colocation,
               groups: Sequence[Group]) -> LevelCapacities | None:
    """The tables of whole GPUs; None for all other slices.

    A replica among n is at most as fast as it is beside n - 1 replicas with the least cache demand and the least power
    of any replica. This bounds its rate.
    """
    if profile != WHOLE:
        return None
    rule = instance.shared_rule
    law = law_of(data, {model for group in groups for model in group.models}, rule.random_arrivals)
    units = len(next(iter(law.grids.values())).batch)
    most = min(units, entry.type.slice_mps_clients(WHOLE) if entry.mps else 1)
    counts = [*(count for count in COUNTS if count <= most), most + 1]
    number = np.array([following - 1 for _, following in pairwise(counts)])
    tables = []
    for beside in (tuple(min(float(getattr(one, what).min()) for one in law.grids.values())
                         for what in ("cache", "power_w")), law.gpu.usual):
        best = Best((len(counts) - 1, len(groups), units))
        first: dict[object, int] = {}
        for at, group in enumerate(groups):
            if first.setdefault(group.workload_class, at) != at:
                best.same(at, first[group.workload_class])
                continue
            budget_ms = group.slo_ms * instance.policy.part_of_slo * GENEROUS
            for model, name in enumerate(group.models):
                if name not in data.models:
                    continue
                grid = law.grids[name]
                hold_ms = np.stack([_beside_ms(law.gpu, grid, count, *beside) + grid.after_ms for count in counts[:-1]])
                rps = rule.capacity_rps(grid.batch, 1, hold_ms, grid.load_ms + hold_ms, budget_ms) * GENEROUS
                for level, most_rps in enumerate(np.where(np.isfinite(hold_ms), rps, 0.0)):
                    best.offer(level, at, model, most_rps, grid.batch[0].astype(int))
        tables.append(Table(best.rps, best.model, best.batch, number, np.full(len(number), units), law.gpu.unit_share,
                            np.full(len(groups), np.inf)))
    least, likely = tables
    return LevelCapacities(least, likely, range(1, data.max_batch + 1))


def interference_capacities(problem: Problem, slice_type: SliceType, data: IgniterProfiles | Colocation
                            ) -> LevelCapacities | None:
    """The RateOracle of a slice type for objective max_throughput; None unless the slice is a whole GPU."""
    entry = problem.instance.fleet[slice_type.entry]
    levels = capacities(problem.instance, entry, slice_type.profile, data, problem.groups)
    if levels is None:
        return None
    patterns = interference_patterns(problem, slice_type, data)
    return levels if patterns is None else ThroughputPatterns(levels, patterns)


def _beside_ms(gpu: GpuLaw, grid: Grid, count: int, cache: float, power_w: float) -> Floats:
    """(units, batches) time of a batch in ms among ``count`` replicas that each demand ``cache`` and ``power_w``.

    The time is infinite if the power demand leaves the GPU no clock.
    """
    delay_ms = gpu.delay_slope_ms * count + gpu.delay_intercept_ms if count > 1 else 0.0
    cache, power_w = (count - 1) * cache, (count - 1) * power_w
    busy_ms = grid.base_ms + grid.kernels * delay_ms
    busy_ms = busy_ms + grid.cache_ms * cache**gpu.root + grid.power_ms * power_w**gpu.root
    return slowed_ms(gpu, busy_ms, grid.power_w + power_w)


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
        self.tables = tables_of(data, instance.shared_rule, demands_of(instance, roles))
        self.pricing = RolePricing(instance, data, self.tables, roles, copies)
        self.able = np.flatnonzero(self.tables.first[:, -1] > self.tables.first[:, 0])

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        return [(int(one),) for one in self.able]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        exact = SCHEDULE.exact._replace(nodes=SCHEDULE.exact.nodes * SCHEDULE.more**effort)
        patterns, found = self.pricing.priced(values, floor, exact)
        best = max(floor, found.value.max(initial=0.0))
        return Priced(patterns, max(found.most, floor), found.most <= best * (1 + SCHEDULE.exact.close) + 1)

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
    """The RateOracle of a slice type; None if it has none. It lists few patterns, whatever the deadline."""
    if problem.fills:
        return interference_capacities(problem, slice_type, data)
    return interference_patterns(problem, slice_type, data)


oracle = WayOfSharing(interference_oracle, interference_rates, interference_settings)
"""The way of sharing: whole GPUs under MPS."""

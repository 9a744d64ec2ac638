"""Bounds the rates of replicas on whole GPUs under interference, by the rate that each would have beside neighbours
with the least demands.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.level_capacities import Best, LevelCapacities, Table
from provision.formulations.pricing.mps.laws import GpuLaw, Grid, law_of, slowed_ms
from provision.formulations.pricing.mps.rates import interference_patterns
from provision.formulations.pricing.mps.sets import InterferingSets, sets
from provision.formulations.pricing.rates import GENEROUS
from provision.formulations.pricing.throughput_patterns import ThroughputPatterns
from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.segments import SliceType
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
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


class InterferenceCapacities(LevelCapacities):
    """Tables of whole GPUs where every workload has one replica and the sets of workloads that can share a GPU are
    known.

    Parameters
    ----------
    levels
        The tables over levels.
    sets
        The sets of workloads that can share a GPU.
    """

    by_sets, hardest = True, InterferingSets.hardest

    def __init__(self, levels: LevelCapacities, sets: InterferingSets) -> None:
        super().__init__(levels.table, levels.likely, levels.batches)
        self.every, self.best = sets.every, sets.best  # type: ignore[method-assign]
        self.carried, self.held = sets.carried, sets.held  # type: ignore[method-assign]


def interference_capacities(problem: Problem, slice_type: SliceType, data: IgniterProfiles | Colocation
                            ) -> LevelCapacities | None:
    """The RateOracle of a slice type for objective max_throughput; None unless the slice is a whole GPU."""
    entry = problem.instance.fleet[slice_type.entry]
    levels = capacities(problem.instance, entry, slice_type.profile, data, problem.groups)
    if levels is None:
        return None
    found = None if any(group.most > 1 for group in problem.groups) else sets(problem, slice_type, data)
    if found is not None:
        return InterferenceCapacities(levels, found)
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

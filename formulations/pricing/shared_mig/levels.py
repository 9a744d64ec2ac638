"""Levels at which closed networks share a slice.

On a shared slice, a batch takes Z + s S, with think time Z, slice time S and slowdown s = min(P, 1 / (1 - U)), where P
processes use the slice and its utilisation is U. A *level* bounds s. At a level, the rate of a process and the slice
time of a request do not depend on the neighbours.

Under a latency rule for random arrivals, levels for plans are numbers of processes: a batch takes at most Z + P S,
whatever the utilisation.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.schedule import NETWORKS
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload


class Level(NamedTuple):
    """A level: batches slow down by the factor ``slowdown``, and ``launching`` processes launch kernels.

    The slice has at most ``processes`` processes and a utilisation of at most ``use``, which may be infinite.
    """

    slowdown: float
    launching: int
    processes: int
    use: float


ANY_NUMBER = 10**6
"""More processes than any slice has."""
_ENDS = (*NETWORKS.bounded_uses, 1 - 1 / (NETWORKS.most_processes + 1), 1.0)
BOUNDED = [*(Level(number, number, number, 1.0) for number in range(2, NETWORKS.most_processes + 1)),
           *(Level(1 / (1 - low), 2, ANY_NUMBER, high) for low, high in pairwise(_ENDS))]
"""Levels for bounds, which cover all ways to share a slice: one for each number of processes that plans have, and one
for each interval of utilisation, with any number of processes.

A level for an interval has the slowdown at the lower end of the interval. In the last interval, batches slow down more
than beside the most processes that are counted.
"""
NOBODY = [Level(1, 1, ANY_NUMBER, 1.0)]
"""The level for bounds under rules for random arrivals: replicas do not slow each other, they only take a part of the
slice's time.
"""


def planned_levels(clients: int, random_arrivals: bool) -> list[Level]:
    """Levels for plans on a slice with ``clients`` MPS clients. On a slice within the limits of a level, batches slow
    down by no more than the factor of the level.
    """
    last = min(clients, NETWORKS.most_processes)
    found = []
    for most in (*(number for number in NETWORKS.planned_processes if number < last), last):
        if not random_arrivals:
            found += [Level(1 / (1 - use), most, most, use) for use in NETWORKS.planned_uses if 1 / (1 - use) < most]
        found.append(Level(most, most, most, np.inf))
    return found


def level_times_ms(network: ClosedNetwork, sizes: Ints, levels: Sequence[Level], compute: int
                   ) -> tuple[Floats, Floats]:
    """(levels, sizes) the latency of batches at each level, and (sizes,) their slice time, in ms."""
    launching, slowdown = (np.array([[getattr(one, what)] for one in levels]) for what in ("launching", "slowdown"))
    think_ms, slice_ms = work_ms_array(network, sizes, launching, compute)
    return think_ms + slice_ms * slowdown, slice_ms


def busy_per_item_s(network: ClosedNetwork, compute: int) -> Floats:
    """(batches,) the slice time per request in batches of 1, 2, ... requests, in seconds."""
    sizes = np.arange(1, network.max_batch + 1)
    return work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes)


def longest_work_ms(network: ClosedNetwork, sizes: Ints, launching: Ints, compute: int) -> tuple[Floats, Floats]:
    """Two arrays (batches, levels), in ms: the longest think time (spent outside the slice) and the longest slice time
    of all batches up to each of these sizes.
    """
    every = np.broadcast_to(np.arange(1, sizes[-1] + 1)[:, None], (sizes[-1], len(launching)))
    think_ms, slice_ms = work_ms_array(network, every, launching, compute)
    return np.maximum.accumulate(think_ms)[sizes - 1], np.maximum.accumulate(slice_ms)[sizes - 1]


def bounded_rates(instance: Instance, workload: Workload, model: str, data: FittedNetworks, entry: FleetEntry,
                  profile: str, levels: Sequence[Level] = BOUNDED) -> tuple[Floats, Floats]:
    """Two arrays (levels,) for a workload with one of its models at levels for bounds: the highest requests/s of a
    process, 0 where no batch is within the latency budget; and the least utilisation of one request/s.

    Both are loosened by the verifier's tolerances. A lower rate fills smaller batches, which may take less of the
    slice's time per request; so the utilisation is the least of all batches that the planned rate fills. Under rules
    for random arrivals, these are all batches.
    """
    network, compute = data.models[model].coefficients, entry.type.slice_compute(profile)
    batch = np.array([size for size in data.batches if size <= network.max_batch], np.int64)
    latency_ms, _ = level_times_ms(network, batch, levels, compute)
    fits = latency_ms <= instance.budget_ms(workload) * (1 + TOLERANCE)
    fits &= network.memory_gib(batch, 1) <= entry.type.slice_memory_gib(profile) * (1 + TOLERANCE)
    fill_s = instance.policy.fill_ms(workload.slo_ms) / 1000
    filled = batch if levels is NOBODY else np.minimum(
        batch, 1 + instance.planned_rps(workload) * fill_s * (1 + TOLERANCE)).astype(int)
    least_busy = np.minimum.accumulate(busy_per_item_s(network, compute))[filled - 1]
    rps = np.where(fits, 1000 * batch / latency_ms, 0.0).max(axis=1)
    return rps, np.where(rps > 0, np.where(fits, least_busy, np.inf).min(axis=1), 0.0)

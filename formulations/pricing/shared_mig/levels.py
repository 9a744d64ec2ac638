"""Levels at which closed networks share a slice.

On a shared slice, a batch takes Z + s S, with think time Z, slice time S and slowdown s = min(P, 1 / (1 - U)), where P
processes use the slice and its utilisation is U. A *level* bounds s. At a level, the number of processes that a role
needs, its use of the slice's time and its memory do not depend on its neighbours.

Under a latency rule for random arrivals, levels for plans are numbers of processes: a batch takes at most Z + P S,
whatever the utilisation. Bounds have one level, at which other replicas do not slow a batch: they only take a part of
the slice's time (`run_options`).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array


class Level(NamedTuple):
    """A level: batches slow down by the factor ``slowdown``, and ``launching`` processes launch kernels.

    The slice has at most ``processes`` processes and a utilisation of at most ``use``, which may be infinite.
    """

    slowdown: float
    launching: int
    processes: int
    use: float


def level_times_ms(network: ClosedNetwork, sizes: Ints, levels: Sequence[Level], compute: int
                   ) -> tuple[Floats, Floats]:
    """(levels, sizes) the latency of batches at each level, and (sizes,) their slice time, in ms."""
    launching, slowdown = (np.array([[getattr(one, what)] for one in levels]) for what in ("launching", "slowdown"))
    think_ms, slice_ms = work_ms_array(network, sizes, launching, compute)
    return think_ms + slice_ms * slowdown, slice_ms


def planned_levels(clients: int, random_arrivals: bool) -> list[Level]:
    """Levels for plans on a slice with ``clients`` MPS clients. On a slice within the limits of a level, batches slow
    down by no more than the factor of the level.
    """
    last = min(clients, SCHEDULE.most_processes)
    found = []
    for most in (*(number for number in SCHEDULE.planned_processes if number < last), last):
        if not random_arrivals:
            found += [Level(1 / (1 - use), most, most, use) for use in SCHEDULE.planned_uses if 1 / (1 - use) < most]
        found.append(Level(most, most, most, np.inf))
    return found


def bounded_levels(clients: int, random_arrivals: bool) -> list[Level]:
    """Levels for bounds, which cover all patterns: one for each number of processes that plans have, and one for each
    interval of utilisation, with any number of processes. Under a rule for random arrivals there is only one.

    A level for an interval has the slowdown at the lower end of the interval. In the last interval, batches slow down
    more than beside the most processes that are counted.
    """
    if random_arrivals:
        return [Level(1, 1, clients, 1.0)]
    counted = range(2, min(clients, SCHEDULE.most_processes) + 1)
    ends = [*SCHEDULE.bounded_uses, 1 - 1 / (SCHEDULE.most_processes + 1), 1.0]
    return [*(Level(number, number, number, 1.0) for number in counted),
            *(Level(1 / (1 - low), 2, clients, high) for low, high in pairwise(ends))]

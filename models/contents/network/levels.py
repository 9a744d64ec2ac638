"""Levels at which closed networks share a slice, and the resources of the slice that every role takes at each.

On a shared slice a batch takes Z + s S: think time Z, slice time S, and the slowdown s = min(P, 1 / (1 - U)) of P
processes that use the slice up to U. A *level* bounds s, so that the processes that a role needs, the time that it
uses the slice for, and its memory no longer depend on its neighbours.

Utilisation is not monotone in the rate, because more requests fill batches better. So for plans a role takes the most
that any rate up to its own needs; for bounds it takes the least that any rate of the role needs.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.contents.knapsacks import Levels
from provision.models.contents.roles import Role
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.workload import Policy

FORGIVEN = 1e-8
"""Relative excess that bounds grant: more than the verifier's tolerances add up to."""
MARGIN = 1e-9
"""Part of processes and slices that plans leave free, so that rounding breaks nothing."""
MOST_PROCESSES = 12
"""Processes on one slice that plans have at most, and up to which bounds count them: launching slows with them."""
PLANNED_PROCESSES = (2, 3, 4, 5, 6, 7, 8, 10)
PLANNED_USES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87)
"""Further numbers of processes, and utilisations, at which slices are planned."""
MORE_PROCESSES = (13, 17, 21, 27, 35)
"""Where the ranges of more processes begin that bounds distinguish."""
BOUNDED_USES = (0.0, 0.3, 0.45, 0.55, 0.65, 0.72, 0.78, 0.83, 0.87, 0.9)
"""Where the intervals of utilisation begin that bounds distinguish."""


class Level(NamedTuple):
    """Work slows by ``slowdown`` while ``launching`` processes launch.

    There are up to ``processes`` on the slice, which use it up to ``use``, which may be infinite.
    """

    slowdown: float
    launching: int
    processes: int
    use: float


class Ways(NamedTuple):
    """The ways in which a replica of each role can run at each level.

    Attributes
    ----------
    start
        (roles + 1,) where the ways of each role begin.
    batch, model
        (levels, ways) batch size and index into the models of the role.
    processes, use, memory_gib
        (levels, ways) what a way takes: processes (-1: not allowed), part of the slice's time, memory.
    """

    start: NDArray[np.int64]
    batch: NDArray[np.int64]
    model: NDArray[np.int64]
    processes: NDArray[np.int64]
    use: NDArray[np.float64]
    memory_gib: NDArray[np.float64]

    def knapsacks(self, levels: Sequence[Level], units: int, relaxed: bool) -> Levels:
        """The ways in whole units of utilisation, rounded up, or down when ``relaxed``."""
        use = np.array([[level.use] for level in levels]) * (1 + FORGIVEN if relaxed else 1 - MARGIN)
        parts = self.use / use * units
        second = np.floor(parts * (1 - MARGIN)) if relaxed else np.ceil(parts)
        room = np.array([level.processes for level in levels], np.int64)
        kept = (self.processes >= 0) & (second <= units)
        gib = self.memory_gib * (1 - 1e-6 if relaxed else 1)
        return Levels(self.start, np.where(kept, self.processes, -1).astype(np.int32),
                      np.where(kept, second, 0).astype(np.int32), gib.astype(np.float32), room, units)


def planned_levels(clients: int) -> list[Level]:
    """Levels for plans, whose slowdown holds up to their limits, on a slice with this number of MPS clients."""
    last = min(clients, MOST_PROCESSES)
    found = []
    for most in (*(number for number in PLANNED_PROCESSES if number < last), last):
        found += [Level(1 / (1 - use), most, most, use) for use in PLANNED_USES if 1 / (1 - use) < most]
        found.append(Level(most, most, most, np.inf))
    return found


def bounded_levels(clients: int) -> list[Level]:
    """Levels that cover every way to share a slice: their lower end gives the slowdown, their upper end the room."""
    counted = range(2, min(clients, MOST_PROCESSES) + 1)
    more = [number for number in MORE_PROCESSES if number <= clients]
    found = []
    for number in [*counted, *more[:1]]:
        full, most = 1 - 1 / number, number if number in counted else clients
        ends = [use for use in BOUNDED_USES if use < full] + [full]
        found += [Level(1 / (1 - low), number, most, high) for low, high in pairwise(ends)]
    found += [Level(number, number, number, np.inf) for number in counted]
    for number, following in pairwise([*more, clients + 1]):
        found.append(Level(number, number, following - 1, np.inf))
        if following <= clients:
            found.append(Level(number, following, clients, 1 - 1 / following))
    return found


def ways_of(data: FittedNetworks, profile: str, policy: Policy, roles: Sequence[Role], levels: Sequence[Level],
            relaxed: bool) -> Ways:
    """The ways of all roles, those left out that are no better than another in any resource.

    Parameters
    ----------
    data, profile
        The networks, and the slice's profile.
    policy
        Of the instance.
    roles, levels
        Roles and levels.
    relaxed
        Whether the ways are for bounds.
    """
    counts, parts = np.zeros((0, len(levels)), np.int64), np.zeros((0, len(levels)))
    none = _Columns(counts, counts, counts, parts, parts, counts.astype(bool))
    columns = [_undominated(_joined([none, *_columns(data, profile, policy, role, levels, relaxed)])) for role in roles]
    start = np.cumsum([0, *(len(one.use) for one in columns)])
    found = _Columns._make(field.T for field in _joined([none, *columns]))
    return Ways(start, found.batch, found.model, np.where(found.allowed, found.processes, -1), found.use,
                found.memory_gib)


def _joined(parts: Sequence["_Columns"]) -> "_Columns":
    """Ways one after another."""
    return _Columns._make(map(np.concatenate, zip(*parts, strict=True)))


class _Columns(NamedTuple):
    """(ways, levels) of one role."""

    batch: NDArray[np.int64]
    model: NDArray[np.int64]
    processes: NDArray[np.int64]
    use: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    allowed: NDArray[np.bool_]


def _columns(data: FittedNetworks, profile: str, policy: Policy, role: Role, levels: Sequence[Level], relaxed: bool
             ) -> Iterator[_Columns]:
    """For every model of a role, all batches at all levels."""
    gpu, forgiven = gpu_type(data.gpu), 1 + FORGIVEN if relaxed else 1.0
    compute, memory_gib = gpu.slice_compute(profile), gpu.slice_memory_gib(profile) * forgiven
    budget_ms, fill_s = policy.budget_ms(role.slo_ms) * forgiven, policy.fill_ms(role.slo_ms) / 1000
    launching, slowdown, room = (np.array([getattr(level, what) for level in levels])
                                 for what in ("launching", "slowdown", "processes"))
    used = least_use if relaxed else most_use
    for number, name in enumerate(role.models if profile in data.profiles else ()):
        if name not in data.models:
            continue
        network = data.models[name].coefficients
        sizes = np.array([size for size in data.batches if size <= network.max_batch])
        batch = np.broadcast_to(sizes[:, None], (len(sizes), len(levels)))
        think_ms, slice_ms = work_ms_array(network, batch, launching, compute)
        latency_ms = think_ms + slice_ms * slowdown
        rps = 1000 * batch / latency_ms * (forgiven if relaxed else 1 - MARGIN)
        processes = np.maximum(np.ceil(role.rate_rps / rps), 1).astype(np.int64)
        busy_s = busy_per_item_s(network, compute)
        use = np.array([[used(busy_s, int(size), role, fill_s)] for size in sizes])
        held_gib = processes * network.memory_gib(batch, 1)
        allowed = ((latency_ms <= budget_ms) & (processes <= min(network.max_processes, gpu.mps_clients))
                   & (processes <= room) & (held_gib <= memory_gib))
        yield _Columns(batch, np.full_like(batch, number), processes, np.broadcast_to(use, batch.shape), held_gib,
                       allowed)


def busy_per_item_s(network: ClosedNetwork, compute: int) -> NDArray[np.float64]:
    """(batches,) slice time per request in batches of 1, 2, ..., in seconds."""
    sizes = np.arange(1, network.max_batch + 1)
    return work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes)


def most_use(busy_s: NDArray[np.float64], batch: int, role: Role, fill_s: float) -> float:
    """The largest part of the slice's time that any rate up to a role's takes, however well its batches fill."""
    filled = np.arange(batch)
    here = filled <= role.rate_rps * fill_s * (1 + FORGIVEN)
    longest_s = np.maximum.accumulate(busy_s[:batch][::-1])[::-1]
    rates_rps = np.minimum(role.rate_rps, np.append((filled[:-1] + 1) / fill_s, np.inf))
    return float((rates_rps * longest_s)[here].max())


def least_use(busy_s: NDArray[np.float64], batch: int, role: Role, fill_s: float) -> float:
    """The least of the slice's time that any rate of a role takes with batches up to a size."""
    filled = np.arange(batch)
    here = filled <= role.upto_rps * fill_s * (1 + FORGIVEN)
    here &= (filled + 1 >= role.rate_rps * fill_s * (1 - FORGIVEN)) | (filled == batch - 1)
    rates_rps = np.maximum(role.rate_rps, filled / fill_s)
    return float((rates_rps * busy_s[:batch])[here].min()) * (1 - FORGIVEN)


def _undominated(ways: _Columns) -> _Columns:
    """At each level the allowed ways that no other dominates in every resource, packed into as few rows as possible."""
    resources = (ways.processes, ways.use, ways.memory_gib)
    no_more = np.logical_and.reduce([field[:, None] <= field for field in resources])
    first = np.tri(len(ways.use), k=-1, dtype=bool).T[:, :, None]
    better = no_more & ways.allowed[:, None] & (~no_more.swapaxes(0, 1) | first)
    kept = ways.allowed & ~better.any(axis=0)
    order = np.argsort(~kept, axis=0, kind="stable")[: kept.sum(axis=0).max(initial=0)]
    fields = [np.take_along_axis(field, order, axis=0) for field in ways[:-1]]
    return _Columns._make([*fields, np.take_along_axis(kept, order, axis=0)])

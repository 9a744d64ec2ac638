"""Finds an upper bound on the worth of any set of replicas that share a GPU, by iGniter's model.

A *cell* holds all sets with a given number of replicas whose total cache demand and total power are in given ranges.
First, every operating point gets the worth of the rate that it carries at the lower ends of the ranges. With these
worths, a knapsack over the units of the GPU's SMs bounds all sets of the cell. Then a depth-first search lists the sets
that the knapsack does not rule out, and computes the worth of each at its real demands. A cell with too many sets is
cut in two. Worths are whole numbers. Times are the model's, shortened by far more than rounding errors.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.base.compiled import compiled
from provision.models.base.tolerances import LOOSE, MISSING
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.proofs.demand import Steps
from provision.proofs.lines import HardError

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
NEVER = -(1 << 60)
VISITS = 200_000
"""The number of sets that are looked at in a cell before the cell is cut in two. It doubles with each cut."""
WORK = 10**9
"""The most sets, and entries of knapsack tables, that are looked at for one claim."""
MOST_RATES = 100_000
"""The most rates of all groups together, each group counted with as many as the largest has."""


class Cell(NamedTuple):
    """All sets of ``many`` replicas whose total cache demand is in the range ``cache`` and whose total power (W) is in
    ``power``. ``cuts`` counts how often a larger cell was cut in two to get this one.
    """

    many: int
    cache: tuple[float, float]
    power: tuple[float, float]
    cuts: int = 0


class Points(NamedTuple):
    """Operating points of groups of workloads with the same models and SLO, in descending order of cache demand.

    Times are at full clock: ``scheduling_ms`` without neighbours, and ``active_ms``. The latter grows by the fraction
    ``slows`` per unit of the neighbours' cache demand. ``room_ms`` (points, rates) is how long a batch may take on the
    GPU if the replica is to carry each rate of its group, in ascending order; it is negative if the replica cannot.
    """

    group: Whole
    units: Whole
    cache: Real
    power: Real
    scheduling_ms: Real
    kernels: Real
    active_ms: Real
    slows: Real
    room_ms: Real


class Sharing:
    """The replicas that may share a GPU. ``worth`` lists workloads, each with the worth of a replica by its rate."""

    def __init__(self, instance: Instance, data: IgniterProfiles, clients: int, worth: Sequence[tuple[Workload, Steps]]
                 ) -> None:
        self.instance, self.data, self.hardware, self.clients = instance, data, data.hardware, clients
        groups: dict[tuple[tuple[str, ...], float], list[tuple[Workload, Steps]]] = {}
        for one, steps in worth:
            groups.setdefault((one.models, instance.budget_ms(one)), []).append((one, steps))
        self.copies = np.array([sum(one.max_replicas or clients for one, _ in each) for each in groups.values()])
        rates = [sorted({rate for _, steps in each for rate, _ in steps}) for each in groups.values()]
        self.worth = np.zeros((len(groups), max(map(len, rates), default=0) + 1), np.int64)
        if self.worth.size > MOST_RATES:
            raise HardError
        found: list[Points] = []
        for at, ((models, budget_ms), each) in enumerate(groups.items()):
            for rate, price in (step for _, steps in each for step in steps):
                here = self.worth[at, rates[at].index(rate) + 1 :]
                here[:] = np.maximum(here, price)
            found += [self._points(at, model, budget_ms, rates[at]) for model in models if model in data.models]
        points = [np.concatenate(column) for column in zip(*found, strict=True)]
        self.points = Points(*(column[np.argsort(-points[2], kind="stable")] for column in points)) if points else None
        self.cap_w = data.hardware.power_cap_w - data.hardware.idle_power_w
        self.loss = -data.hardware.clock_slope_mhz_per_w / data.hardware.max_clock_mhz

    def _points(self, group: int, model: str, budget_ms: float, rates: Sequence[float]) -> Points:
        """The operating points of a model at which a replica alone carries at least the lowest rate of its group."""
        one, hardware, rule = self.data.models[model], self.hardware, self.instance.shared_rule
        rows: list[tuple[int, float, float, float, Real]] = []
        for batch in range(1, self.data.max_batch + 1):
            load_ms, reply_ms = (hardware.transfer_ms(size * batch) for size in (one.load_bytes, one.feedback_bytes))
            room_ms = np.full(self.worth.shape[1] - 1, -1.0)
            room = rule.room_ms(batch, np.array(rates) * (1 - MISSING), load_ms, budget_ms * (1 + LOOSE))
            if (one.memory_gib(batch) or 0) <= gpu_type(self.data.gpu).slice_memory_gib(WHOLE) * (1 + LOOSE):
                room_ms[: len(rates)] = room * (1 + LOOSE) - reply_ms
            sizes = range(1 if rule.random_arrivals else batch, batch + 1)
            for number in range(1, hardware.units + 1):
                active = [one.active_ms(size, number * hardware.unit_share) for size in sizes]
                able = max(1000 * size / each for size, each in zip(sizes, active, strict=True))
                rows.append((number, one.cache_demand(able), one.power_w(able), max(active), room_ms))
        units, cache, power, active_ms, room_ms = (np.array(column) for column in zip(*rows, strict=True))
        scheduling_ms = one.kernel_delay_ms * one.kernels
        kept = np.flatnonzero((room_ms > (scheduling_ms + active_ms)[:, None] * (1 - LOOSE)).any(axis=1))
        full = np.ones(len(kept))
        return Points(np.full(len(kept), group), units[kept], cache[kept], power[kept], scheduling_ms * full,
                      one.kernels * full, active_ms[kept], one.cache_sensitivity * full, room_ms[kept])

    def most(self, target: int, first: bool = False) -> int:
        """The highest worth of any set; ``target`` if no set is worth more. With ``first`` it is any worth above
        ``target``. Raises HardError if there are too many sets.
        """
        work = WORK
        for many in range(1, min(self.clients, self.hardware.units) + 1 if self.points else 1):
            assert self.points is not None
            (least, most), (least_w, most_w) = ((many * side.min(initial=1e9), many * side.max(initial=0.0))
                                                for side in (self.points.cache, self.points.power))
            cells = [Cell(many, (least, most), (least_w, max(0.0, self.cap_w))),
                     Cell(many, (least, most), (max(0.0, self.cap_w), max(0.0, self.cap_w, most_w)))]
            there = False
            while cells:
                cell = cells.pop()
                points, worth = self._worth(self.points, cell)
                best = _knapsack(points.units, worth, many, self.hardware.units)
                there |= bool(best[0, many, -1] > 0)
                visits = min(VISITS << min(cell.cuts, 20), work)
                highest, left = _listed(points, worth, best, cell, self.worth, self.copies, self.cap_w, self.loss,
                                        self.hardware.extra_delay_ms(many), target, visits)
                if first and highest > target:
                    return highest
                work -= visits - left + best.size
                if work <= 0:
                    raise HardError
                if left > 0:
                    target = highest
                    continue
                slows = points.slows.max() * (cell.cache[1] - cell.cache[0])  # power below the cap slows nobody
                by_cache = cell.power[0] < self.cap_w or slows >= self.loss * (cell.power[1] - cell.power[0])
                low, high = cell.cache if by_cache else cell.power
                for side in ((low, (low + high) / 2), ((low + high) / 2, high)):
                    sides = (side, cell.power) if by_cache else (cell.cache, side)
                    cells.append(Cell(many, *sides, cell.cuts + 1))
            if not there:  # a set that holds without one of its replicas holds too
                break
        return target

    def _worth(self, points: Points, cell: Cell) -> tuple[Points, Whole]:
        """The operating points that the sets of a cell may contain, each with its worth at the cell's least demands."""
        cache, power = (side + (cell.many - 1) * side.min(initial=0.0) for side in (points.cache, points.power))
        clock = 1 - self.loss * np.maximum(np.maximum(power, cell.power[0]) - self.cap_w, 0.0)
        beside = np.maximum(cell.cache[0], cache) - points.cache
        busy_ms = points.scheduling_ms + points.kernels * self.hardware.extra_delay_ms(cell.many)
        busy_ms = (busy_ms + points.active_ms * (1 + points.slows * beside)) * (1 - LOOSE)
        carried = (points.room_ms * clock[:, None] >= busy_ms[:, None]).sum(axis=1)
        there = (cache <= cell.cache[1] * (1 + LOOSE)) & (power <= cell.power[1] * (1 + LOOSE)) & (clock > 0)
        kept = np.flatnonzero(there & (carried > 0))
        some: list[Any] = [column[kept] for column in points]
        return Points(*some), self.worth[points.group[kept], carried[kept]]


@compiled
def _knapsack(units: Whole, worth: Whole, many: int, limit: int) -> Whole:
    """(points + 1, replicas + 1, units + 1) the highest worth of so many replicas, at this or later points."""
    best = np.zeros((len(units) + 1, many + 1, limit + 1), np.int64)
    best[:, 1:] = NEVER
    for one in range(len(units) - 1, -1, -1):
        best[one] = best[one + 1]
        for number in range(1, many + 1):
            for total in range(units[one], limit + 1):
                with_it = best[one, number - 1, total - units[one]] + worth[one]
                best[one, number, total] = max(best[one, number, total], with_it)
    return best


@compiled
def _listed(points: Points, worth: Whole, best: Whole, cell: Cell, prices: Whole, copies: Whole, cap_w: float,
            loss: float, delay_ms: float, target: int, visits: int) -> tuple[int, int]:
    """The highest worth of a cell's sets, at least ``target``; and the visits left, 0 if the search did not finish."""
    many, limit = best.shape[1] - 1, best.shape[2] - 1
    chosen, at = np.zeros(many, np.int64), np.zeros(many, np.int64)
    value, used = np.zeros(many + 1, np.int64), np.zeros(many + 1, np.int64)
    cache, power = np.zeros(many + 1), np.zeros(many + 1)
    least, least_w = (points.cache.min(), points.power.min()) if len(worth) else (0.0, 0.0)
    depth = 0
    while depth >= 0 and visits > 0:
        one, rest = at[depth], many - depth - 1
        if (value[depth] + best[one, rest + 1, limit - used[depth]] <= target
                or cache[depth] + (rest + 1) * points.cache[one] < cell.cache[0] * (1 - LOOSE)):
            depth -= 1
            continue
        at[depth] += 1
        visits -= 1
        free, same = limit - used[depth] - points.units[one], 0
        cache[depth + 1], power[depth + 1] = cache[depth] + points.cache[one], power[depth] + points.power[one]
        for other in range(depth):
            same += points.group[chosen[other]] == points.group[one]
        if (free < 0 or value[depth] + worth[one] + best[one, rest, free] <= target or same >= copies[points.group[one]]
                or cache[depth + 1] + rest * least > cell.cache[1] * (1 + LOOSE)
                or power[depth + 1] + rest * least_w > cell.power[1] * (1 + LOOSE)):
            continue
        chosen[depth], used[depth + 1], value[depth + 1] = one, limit - free, value[depth] + worth[one]
        if rest:
            depth += 1
            at[depth] = one
            continue
        total, clock = 0, 1 - loss * max(power[many] - cap_w, 0.0)
        for which in chosen:
            busy_ms = points.scheduling_ms[which] + points.kernels[which] * delay_ms
            busy_ms += points.active_ms[which] * (1 + points.slows[which] * (cache[many] - points.cache[which]))
            carried = 0
            while carried < points.room_ms.shape[1] and points.room_ms[which, carried] * clock >= busy_ms * (1 - LOOSE):
                carried += 1
            total += prices[points.group[which], carried]
        target = max(target, total)
    return target, visits

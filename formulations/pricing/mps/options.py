"""Options of pricing: the ways in which a replica of a class can run on a GPU, and the highest value of each option.

Operating points of one model with equal units and batch have the same power, cache demand and time. They differ only in
the room: the longest time that their class allows. So a model with many classes has one option for each number of units
and each batch. Its value is that of the most valuable class with enough room. The limit on how often that class may
occur is then ignored, which can only raise a bound. A model with few classes has separate options for every class.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED, busy_ms, clock_at
from provision.formulations.pricing.mps.tables import Demand, PointTables, models_apart
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled

MANY = 20
"""A model with at least this many replicas has common options for all its classes."""
SLIGHT = 1e-9
"""The rounding error of sums of cache demand and of power (W)."""


class Options(NamedTuple):
    """Operating points sorted by option, and within an option by room. Option o has the points ``first[o]`` to
    ``first[o + 1]``.

    ``owner`` (points,) is the class of each point and ``room_ms`` (points,) its room. ``slice_type`` (options,) is the
    number of the model or class that the option belongs to. ``copies`` (classes,) is how often a pattern may hold a
    class. ``cache`` and ``power_w`` are the (least, most) of any point.
    """

    points: Ints
    first: Ints
    owner: Ints
    room_ms: Floats
    slice_type: Ints
    copies: Ints
    cache: tuple[float, float]
    power_w: tuple[float, float]


class Offers(NamedTuple):
    """The options in a node, those with most units first: their units, whole-number value, demands and class (``one``).
    """

    units: Ints
    value: Ints
    cache: Floats
    power_w: Floats
    one: Ints


def options_of(tables: PointTables, demands: Sequence[Demand], counts: Ints) -> Options:
    """The Options of demands; ``counts`` (demands,) is the number of replicas of each demand."""
    models = models_apart(demands)
    many = (np.bincount(models, counts) >= MANY)[models]
    slice_type = np.where(many, models, models.max() + 1 + np.arange(len(demands)))
    owner = np.repeat(np.arange(len(demands)), tables.first[:, -1] - tables.first[:, 0])
    keys = np.stack([slice_type[owner], tables.units, tables.batch, tables.model])
    alike, option = np.unique(keys, axis=1, return_inverse=True)
    points = np.lexsort((tables.loose_ms, option.ravel()))
    first = np.searchsorted(option.ravel()[points], np.arange(alike.shape[1] + 1))
    copies = np.where(many, tables.most, counts)
    brought = (tables.cache, tables.power_w) if len(points) else (np.zeros(1), np.zeros(1))
    cache, power_w = ((float(one.min()), float(one.max())) for one in brought)
    slice_types = np.ascontiguousarray(alike[0])  # kernels are compiled for one memory layout
    return Options(points, first, owner[points], tables.loose_ms[points], slice_types, copies, cache, power_w)


@compiled
def dearest(options: Options, values: Ints) -> tuple[Ints, Ints]:
    """Two arrays (points,): the highest value of any class at this point or at a point of the same option with more
    room, and the index of that class. ``values`` (classes,) are the values of all classes.
    """
    worth, one = np.empty(len(options.points), np.int64), np.empty(len(options.points), np.int64)
    for option in range(len(options.slice_type)):
        value, owner = np.int64(0), np.int64(0)
        for at in range(options.first[option + 1] - 1, options.first[option] - 1, -1):
            if values[options.owner[at]] >= value:
                value, owner = values[options.owner[at]], options.owner[at]
            worth[at], one[at] = value, owner
    return worth, one


class Ranges(Protocol):
    """Patterns of ``size`` members whose cache demand and power (W) lie in (least, most); see ``nodes.Node``."""

    @property
    def size(self) -> int:
        """The number of members."""
        ...

    @property
    def cache(self) -> tuple[float, float]:
        """The range (least, most) of the total cache demand."""
        ...

    @property
    def power_w(self) -> tuple[float, float]:
        """The range (least, most) of the total power, in W."""
        ...


@compiled
def offers_in(tables: PointTables, options: Options, worth: Ints, one: Ints, node: Ranges) -> Offers:
    """The Offers in a node, given the result of ``dearest``. Offers that another offer of the same model or class
    dominates are left out.
    """
    count, cache, power_w = node.size, node.cache, node.power_w
    many = len(options.slice_type)
    kept = Offers(np.empty(many, np.int64), np.empty(many, np.int64), np.empty(many), np.empty(many),
                  np.empty(many, np.int64))
    clock = clock_at(tables, power_w[0])
    least_cache, least_w = (count - 1) * options.cache[0], (count - 1) * options.power_w[0]
    size, begin, slice_type = 0, 0, -1
    for option in range(many if clock > 0 else 0):
        point = options.points[options.first[option]]
        own, own_w = tables.cache[point], tables.power_w[point]
        if own + least_cache > cache[1] + SLIGHT or own_w + least_w > power_w[1] + SLIGHT:
            continue
        gpu_ms = busy_ms(tables, point, count, cache[0] - own, power_w[0] - own_w, -ROUNDED)
        at = _first_above(options.room_ms, options.first[option], options.first[option + 1], gpu_ms / clock)
        if at == options.first[option + 1] or worth[at] == 0:
            continue
        if options.slice_type[option] != slice_type:
            slice_type, begin = options.slice_type[option], size
        if not _beaten(kept, begin, size, worth[at], own, own_w):
            kept.units[size], kept.value[size] = tables.units[point], worth[at]
            kept.cache[size], kept.power_w[size], kept.one[size] = own, own_w, one[at]
            size += 1
    return _most_units_first(kept, size, tables.limit)


@compiled
def _most_units_first(kept: Offers, size: int, limit: int) -> Offers:
    """The first ``size`` offers, sorted by falling units; offers with equal units keep their order. Units are at most
    ``limit``.
    """
    sorted_ = Offers(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size),
                     np.empty(size, np.int64))
    place = np.zeros(limit + 2, np.int64)
    for at in range(size):
        place[kept.units[at]] += 1
    for units in range(limit, -1, -1):
        place[units] += place[units + 1]
    for at in range(size - 1, -1, -1):
        place[kept.units[at]] -= 1
        to = place[kept.units[at]]
        sorted_.units[to], sorted_.value[to], sorted_.one[to] = kept.units[at], kept.value[at], kept.one[at]
        sorted_.cache[to], sorted_.power_w[to] = kept.cache[at], kept.power_w[at]
    return sorted_


@compiled
def _first_above(sorted_: Floats, start: int, end: int, value: float) -> int:
    """The first position from ``start`` up to ``end`` whose entry is not below a value; ``end`` if there is none."""
    while start < end:
        middle = (start + end) // 2
        if sorted_[middle] < value:
            start = middle + 1
        else:
            end = middle
    return start


@compiled
def _beaten(kept: Offers, begin: int, size: int, value: int, cache: float, power_w: float) -> bool:
    """Whether an offer from ``begin`` up to ``size`` dominates the given offer, which has at least as many units as all
    these.
    """
    for other in range(begin, size):
        if kept.value[other] >= value and kept.cache[other] <= cache and kept.power_w[other] <= power_w:
            return True
    return False

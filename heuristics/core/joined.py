"""Joins tables of operating points into one record, so that kernels are compiled once for any number of tables."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.laws import GpuLaw
from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import inner

COLUMNS = ("units", "base_ms", "kernels", "cache_ms", "power_ms", "cache", "power_w", "room_ms")
"""The arrays over points from which `provision.formulations.pricing.mps.kernels.settle` finds operating points."""
SCALARS = ("unit_share", "root", "delay_slope_ms", "delay_intercept_ms", "idle_w", "cap_w", "clock_loss")
"""The scalars of a GPU type that `settle` reads, in the order of the columns of ``JoinedPoints.scalars``, of which two
further ones are ``limit`` and ``most``."""


class JoinedPoints(NamedTuple):
    """Several PointTables joined into one record. `points_of` takes one of them out again.

    Attributes
    ----------
    first
        The arrays ``first`` of all tables, flattened, one after the other. They index the joined arrays over points.
    begin
        (tables + 1,) where the part of each table begins in ``first``, and where the last part ends.
    scalars
        (tables, scalars) the SCALARS, ``limit`` and ``most`` of each table.
    units, base_ms, kernels, cache_ms, power_ms, cache, power_w, room_ms
        The arrays over the points of all tables, one after the other: the COLUMNS.
    """

    first: Ints
    begin: Ints
    scalars: Floats
    units: Ints
    base_ms: Floats
    kernels: Floats
    cache_ms: Floats
    power_ms: Floats
    cache: Floats
    power_w: Floats
    room_ms: Floats


def joined(tables: Sequence[PointTables]) -> JoinedPoints:
    """Join PointTables."""
    offsets = np.cumsum([0, *(len(one.units) for one in tables)])
    flat = [(one.first + offset).ravel() for one, offset in zip(tables, offsets, strict=False)]
    columns = {name: np.concatenate([np.zeros(0, int if name == "units" else float),
                                     *(getattr(one, name) for one in tables)]) for name in COLUMNS}
    return JoinedPoints(
        first=np.concatenate([np.zeros(0, int), *flat]), begin=np.cumsum([0, *map(len, flat)]),
        scalars=np.array([[*(getattr(one.gpu, name) for name in SCALARS), one.limit, one.most] for one in tables]
                         ).reshape(-1, len(SCALARS) + 2),
        **columns)


@inner
def points_of(every: JoinedPoints, number: int) -> PointTables:
    """One of the joined tables, with the fields that ``settle`` reads; the other arrays are empty."""
    unit_share, root, slope_ms, intercept_ms, idle_w, cap_w, clock_loss, limit, most = every.scalars[number]
    gpu = GpuLaw(unit_share, root, slope_ms, intercept_ms, idle_w, cap_w, clock_loss, (0.0, 0.0), (0.0, 0.0))
    first = every.first[every.begin[number]: every.begin[number + 1]].reshape((-1, int(limit) + 2))
    none, nothing = every.units[:0], every.cache[:0]
    return PointTables(
        first, none, every.units, none, every.base_ms, every.kernels, every.cache_ms, every.power_ms, every.cache,
        every.power_w, every.room_ms, nothing, none, nothing, gpu, int(limit), int(most))

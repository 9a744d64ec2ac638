"""Joins tables of operating points into one record, so that kernels are compiled once for any number of tables."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints, Records

COLUMNS = ("base_ms", "kernels", "cache_ms", "power_ms", "cache", "power_w", "room_ms")
"""The arrays over points from which `provision.formulations.pricing.mps.kernels.settle` finds operating points."""
SCALARS = ("unit_share", "root", "delay_slope_ms", "delay_intercept_ms", "idle_w", "cap_w", "clock_loss")
"""The scalars of a GPU type that `settle` reads."""
LAW = np.dtype([*((name, np.float64) for name in SCALARS), ("limit", np.int64), ("most", np.int64)])
"""The scalars of one table."""


class JoinedPoints(NamedTuple):
    """Several PointTables joined into one record.

    Attributes
    ----------
    first
        The arrays ``first`` of all tables, one below the other, padded with their last column. They index the joined
        arrays over points.
    begin
        (tables + 1,) the row at which the part of each table begins in ``first``, and where the last part ends.
    laws
        (tables,) records of type LAW.
    units
        (points,) the units of the points of all tables, one after the other.
    columns
        (COLUMNS, points) the other arrays over these points.
    """

    first: Ints
    begin: Ints
    laws: Records
    units: Ints
    columns: Floats


def joined(tables: Sequence[PointTables]) -> JoinedPoints:
    """Join PointTables."""
    offsets = np.cumsum([0, *(len(one.units) for one in tables)])
    width = max((one.first.shape[1] for one in tables), default=0)
    first = [np.pad(one.first + offset, ((0, 0), (0, width - one.first.shape[1])), "edge")
             for one, offset in zip(tables, offsets, strict=False)]
    columns = [np.array([getattr(one, name) for name in COLUMNS]) for one in tables]
    return JoinedPoints(
        first=np.vstack([np.zeros((0, width), int), *first]), begin=np.cumsum([0, *map(len, first)]),
        laws=np.array([(*(getattr(one.gpu, name) for name in SCALARS), one.limit, one.most) for one in tables], LAW),
        units=np.concatenate([np.zeros(0, int), *(one.units for one in tables)]),
        columns=np.hstack([np.zeros((len(COLUMNS), 0)), *columns]))

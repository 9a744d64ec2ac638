"""Handles SM shares of replicas under MPS: multiples of a unit, which floating-point numbers only approximate."""

import math

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.operating_points import Member

DIGITS = 12
"""The decimal digits of an SM share in a plan."""


def units_of(unit_share: float) -> int:
    """The number of SM share units of a whole GPU."""
    return math.floor(1 / unit_share * (1 + TOLERANCE))


def share_of_units(unit_share: float, units: float) -> float:
    """The SM share of some units: at most a whole GPU, without floating-point noise, and still on the grid of a unit
    like 1/17."""
    return min(round(unit_share * units, DIGITS), 1.0)


def shares_of(unit_share: float) -> Floats:
    """The SM shares of 1, 2, ... units up to a whole GPU, each as ``share_of_units`` gives it."""
    return np.minimum(np.round(unit_share * np.arange(1, units_of(unit_share) + 1), DIGITS), 1.0)


def grid(unit_share: float, max_batch: int) -> tuple[np.ndarray, np.ndarray]:
    """All combinations of batch sizes up to ``max_batch`` and SM shares.

    Returns
    -------
    tuple of two arrays (batches, units)
        The batch size and the SM share of every combination.
    """
    shares = unit_share * np.arange(1, units_of(unit_share) + 1)
    batch, sm_share = np.meshgrid(np.arange(1, max_batch + 1), shares, indexing="ij")
    return batch, sm_share


def on_grid(member: Member, unit_share: float, max_batch: int) -> bool:
    """Whether a member has one process, a batch size up to ``max_batch``, and an SM share that is a multiple of the
    unit."""
    units = member.sm_share / unit_share
    return (
        member.processes == 1
        and member.batch <= max_batch
        and round(units) >= 1
        and abs(units - round(units)) < units * TOLERANCE
    )

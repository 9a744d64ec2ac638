"""SM shares of replicas under MPS: multiples of a unit that floating point cannot hold."""

import math

import numpy as np

from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.operating_points import Member


def units_of(unit_share: float) -> int:
    """Units of a whole GPU."""
    return math.floor(1 / unit_share * (1 + TOLERANCE))


def grid(unit_share: float, max_batch: int) -> tuple[np.ndarray, np.ndarray]:
    """All batches up to ``max_batch`` against all SM shares: two arrays (batches, units)."""
    shares = unit_share * np.arange(1, units_of(unit_share) + 1)
    batch, sm_share = np.meshgrid(np.arange(1, max_batch + 1), shares, indexing="ij")
    return batch, sm_share


def on_grid(member: Member, unit_share: float, max_batch: int) -> bool:
    """Whether a member is one process with a batch and an SM share that stand on the grid."""
    units = member.sm_share / unit_share
    return (
        member.processes == 1
        and member.batch <= max_batch
        and round(units) >= 1
        and abs(units - round(units)) < units * TOLERANCE
    )

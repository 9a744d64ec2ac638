"""gpu-lets' model of the interference of two models on a GPU (ATC 2022, section 4.4): the slowdown is linear in the
utilisations of each model alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError

NOISE = 0.05
"""The residual from which on the robust fit treats a measured slowdown as an outlier."""


class PairwiseInterference(NamedTuple):
    """The coefficients c1 to c5 of the slowdown.

    Utilisations are fractions. They are measured with each model alone, at the share of the GPU that it has in the
    pair.
    """

    l2_own: float
    l2_other: float
    dram_own: float
    dram_other: float
    constant: float

    def slowdown(self, l2_own: ArrayLike, l2_other: ArrayLike, dram_own: ArrayLike, dram_other: ArrayLike) -> Floats:
        """Latency beside the other model divided by latency alone; arguments are numbers or arrays."""
        utilisation = np.stack([l2_own, l2_other, dram_own, dram_other])
        return np.tensordot(self[:4], utilisation, axes=1) + self.constant


def fit(l2_own: Floats, l2_other: Floats, dram_own: Floats, dram_other: Floats,
        slowdown: Floats) -> PairwiseInterference:
    """Fit the coefficients to measured pairs by robust least squares, with c1 to c4 not below 0.

    Parameters
    ----------
    l2_own, l2_other, dram_own, dram_other
        The utilisations of each model alone as fractions, shape (pairs,).
    slowdown
        The latencies beside the other model divided by the latencies alone, shape (pairs,).

    Raises
    ------
    InputError
        If the pairs do not determine all five coefficients.
    """
    terms = np.column_stack([l2_own, l2_other, dram_own, dram_other, np.ones(len(slowdown))])
    if np.linalg.matrix_rank(terms) < terms.shape[1]:
        raise InputError(f"{len(slowdown)} pairs do not tell five coefficients apart; measure more different ones")
    linear, low = np.linalg.lstsq(terms, slowdown, rcond=None)[0], np.array([0, 0, 0, 0, -np.inf])

    def residuals(coefficients: Floats) -> Floats:
        return (terms @ coefficients - slowdown) / NOISE

    solution = least_squares(
        residuals,
        np.maximum(linear, low),
        bounds=(low, np.inf),
        loss="soft_l1",
    )
    return PairwiseInterference(*solution.x.tolist())

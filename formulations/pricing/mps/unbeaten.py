"""A kernel that removes dominated points."""

import numpy as np

from provision.models.base.arrays import Bools, Floats
from provision.models.base.compiled import compiled


@compiled
def unbeaten(costs: Floats) -> Bools:
    """(points,) flags of the rows of ``costs`` (points, criteria) that are kept.

    A row is dropped if an earlier kept row is no higher in any criterion.
    """
    kept = np.empty(len(costs), np.int64)
    keep = np.zeros(len(costs), np.bool_)
    many = 0
    for at in range(len(costs)):
        beaten = False
        for other in kept[:many]:
            beaten = True
            for criterion in range(costs.shape[1]):
                if costs[other, criterion] > costs[at, criterion]:
                    beaten = False
                    break
            if beaten:
                break
        if not beaten:
            keep[at] = True
            kept[many] = at
            many += 1
    return keep

"""The least value of a replica set that carries a rate, if values of replicas are piecewise linear in their rates.

Of two replicas between levels, one can give rate to the other without raising the total value, until one of them is at
a level. So some cheapest replica set has at most one replica between levels. A table holds the least value of sets of
replicas at levels, for their total rate in whole steps. Rates of levels are rounded up, so that the result is at most
the true least value.
"""

import numpy as np

from provision.formulations.pricing.mps.pricing import value_at
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled

STEPS = 1000
"""The steps into which the highest level is divided."""


@compiled
def least_value(rps: Floats, value: Floats, rates_rps: Floats, counts: Ints) -> Floats:
    """(rates,) the least value of a replica set for each rate.

    ``counts`` (rates, levels + 1) is overwritten by the replicas of the set at each level; the last entry is 0.
    The replica between levels carries the rest.
    """
    levels, step = len(rps), rps[-1] / STEPS
    size = int(np.ceil(rates_rps.max() / step)) + STEPS + 1
    least, chosen = np.full(size, np.inf), np.full(size, -1)
    least[0] = 0.0
    whole = np.empty(levels, np.int64)
    for level in range(levels):
        whole[level] = int(np.ceil(rps[level] / step - 1e-9))
    for total in range(1, size):
        for level in range(1, levels):
            if whole[level] <= total and least[total - whole[level]] + value[level] < least[total]:
                least[total], chosen[total] = least[total - whole[level]] + value[level], level
    useful, many, cheapest = np.empty(size, np.int64), 0, np.inf
    for total in range(size - 1, -1, -1):  # a larger total at a lower value beats this one
        if least[total] < cheapest:
            cheapest, useful[many], many = least[total], total, many + 1
    found = np.full(len(rates_rps), np.inf)
    counts[:] = 0
    for one in range(len(rates_rps)):
        best = -1
        for which in range(many):
            total = useful[which]
            rest = rates_rps[one] - total * step
            worth = least[total] + (value_at(rps, value, rest) if rest > 0 else 0.0)
            if rest <= rps[-1] and worth < found[one]:
                found[one], best = worth, total
        while best > 0:
            counts[one, chosen[best]] += 1
            best -= whole[chosen[best]]
    return found

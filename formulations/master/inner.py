"""Inner prices: the best prices known that prove a bound, and prices between them and those of the linear program.

The prices of the linear program change wildly from round to round while columns are few. Pricing between them and inner
prices, at which no content is worth more than its slice and no partition more than a GPU, takes far fewer rounds
(in-out separation: Ben-Ameur and Neto 2007; smoothing of duals: Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.program import MasterDuals
from provision.formulations.search.problem import Supply

NEW = 0.2
"""The weight of a new solution in averages of prices."""


class Inner(NamedTuple):
    """Prices of slices and roles, in multiples of the dearest GPU's, and the bound that they prove in the same unit.

    The bound holds where each GPU type has one price, without limit; other fleets prove theirs by `type_counts`.
    """

    value: float
    kinds: NDArray[np.float64]
    roles: NDArray[np.float64]


NOTHING = Inner(0.0, np.zeros(0), np.zeros(0))
"""The inner prices to begin with, which prove nothing."""


def inner_of(needed: int, most: NDArray[np.int64], roles: NDArray[np.int64], supplies: Sequence[Supply]) -> Inner:
    """The inner prices that a round of pricing proves.

    Parameters
    ----------
    needed
        What all covers are worth together at least, in any unit.
    most
        (kinds,) the most that a content or the slice itself is worth, in the same unit.
    roles
        (roles,) the prices of roles, in the same unit.
    supplies
        The GPUs and their prices.
    """
    dearest = max(supply.worth for supply in supplies)
    over = max(float((supply.partitions @ most).max()) * dearest / supply.worth for supply in supplies)
    return Inner(needed / over, most / over, roles / over) if over > 0 else NOTHING


def drawn(found: MasterDuals, inner: Inner, inward: float) -> MasterDuals:
    """The prices of the linear program, drawn towards inner prices by the part ``inward`` of the way."""
    return found._replace(kinds=inward * inner.kinds + (1 - inward) * found.kinds,
                          roles=inward * inner.roles + (1 - inward) * found.roles)


def averaged(central: MasterDuals, found: MasterDuals) -> MasterDuals:
    """A solution of the linear program with averaged prices: a running mean, to which it adds its own."""
    pairs = ((central.kinds, found.kinds), (central.roles, found.roles), (central.groups, found.groups))
    kinds, roles, groups = (NEW * new + (1 - NEW) * old for old, new in pairs)
    return found._replace(kinds=kinds, roles=roles, groups=groups)

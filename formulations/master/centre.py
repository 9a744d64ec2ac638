"""Central prices: the best prices known that prove a bound, and prices between them and those of the linear program.

The prices of the linear program change wildly from round to round while columns are few. Pricing between them and inner
prices, at which no pattern is worth more than its slice and no partition more than a GPU, takes far fewer rounds
(in-out separation: Ben-Ameur and Neto 2007; smoothing of duals: Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.role_columns import MasterDuals
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.search.problem import Pool


class Centre(NamedTuple):
    """Prices of slices and roles, in multiples of the dearest GPU's, and the bound that they prove in the same unit.

    The bound holds where each GPU type has one price, without limit; other fleets prove theirs by `type_counts`.
    """

    value: float
    slice_types: NDArray[np.float64]
    roles: NDArray[np.float64]


NOTHING = Centre(0.0, np.zeros(0), np.zeros(0))
"""The central prices to begin with, which prove nothing."""


def centre_of(needed: int, most: NDArray[np.int64], roles: NDArray[np.int64], pools: Sequence[Pool]) -> Centre:
    """The central prices that a round of pricing proves.

    Parameters
    ----------
    needed
        What all replica sets are worth together at least, in any unit.
    most
        (slice types,) the most that a pattern or the slice itself is worth, in the same unit.
    roles
        (roles,) the prices of roles, in the same unit.
    pools
        The GPUs and their prices.
    """
    dearest = max(pool.worth for pool in pools)
    over = max(float((pool.partitions @ most).max()) * dearest / pool.worth for pool in pools)
    return Centre(needed / over, most / over, roles / over) if over > 0 else NOTHING


def drawn(found: MasterDuals, centre: Centre, inward: float) -> MasterDuals:
    """The prices of the linear program, drawn towards central prices by the part ``inward`` of the way."""
    return found._replace(slice_types=inward * centre.slice_types + (1 - inward) * found.slice_types,
                          roles=inward * centre.roles + (1 - inward) * found.roles)


def averaged(central: MasterDuals, found: MasterDuals) -> MasterDuals:
    """A solution of the linear program with averaged prices: a running mean, to which it adds its own."""
    pairs = ((central.slice_types, found.slice_types), (central.roles, found.roles), (central.groups, found.groups))
    slice_types, roles, groups = (SCHEDULE.pace * new + (1 - SCHEDULE.pace) * old for old, new in pairs)
    return found._replace(slice_types=slice_types, roles=roles, groups=groups)

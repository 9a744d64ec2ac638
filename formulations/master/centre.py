"""Central prices: the prices that prove the best bound so far, and prices between them and the linear program's duals.

While columns are few, the duals of the linear program change wildly from round to round. Pricing at points between
them and inner prices takes far fewer rounds (in-out separation: Ben-Ameur and Neto 2007; smoothing of duals: Wentges
1997). At inner prices no pattern has a value above its slice's price, and no partition one above a GPU's price.
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

    The bound is valid if each GPU type has one price and an unlimited count; for other fleets see `type_counts`.
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
        A lower bound on the total price of all replica sets, in any unit.
    most
        (slice types,) the highest value of a pattern, or of the slice itself, in the same unit.
    roles
        (roles,) the prices of roles, in the same unit.
    pools
        The GPUs and their prices.
    """
    dearest = max(pool.worth for pool in pools)
    over = max(float((pool.partitions @ most).max()) * dearest / pool.worth for pool in pools)
    return Centre(needed / over, most / over, roles / over) if over > 0 else NOTHING


def drawn(found: MasterDuals, centre: Centre, inward: float) -> MasterDuals:
    """The convex combination of the linear program's prices (weight 1 - ``inward``) and central prices (``inward``)."""
    return found._replace(slice_types=inward * centre.slice_types + (1 - inward) * found.slice_types,
                          roles=inward * centre.roles + (1 - inward) * found.roles)


def averaged(central: MasterDuals, found: MasterDuals) -> MasterDuals:
    """A solution of the linear program whose prices are replaced by a running mean of past prices and its own."""
    pairs = ((central.slice_types, found.slice_types), (central.roles, found.roles), (central.groups, found.groups))
    slice_types, roles, groups = (SCHEDULE.pace * new + (1 - SCHEDULE.pace) * old for old, new in pairs)
    return found._replace(slice_types=slice_types, roles=roles, groups=groups)

"""Central prices: the prices that have proven the best bound so far (the stabilisation centre).

While there are few columns, the duals of the linear program change wildly from round to round. Pricing at points
between the duals and the central prices takes far fewer rounds (in-out separation: Ben-Ameur and Neto 2007; smoothing
of duals: Wentges 1997). Central prices are scaled so that no pattern is worth more than its slice costs, and no
partition more than its GPU.
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
    """Prices of slices and roles, and the bound ``value`` that they prove, in multiples of the dearest GPU's price.

    The bound is valid if each GPU type has one price and an unlimited count; for other fleets see `type_counts`.
    """

    value: float
    slice_types: NDArray[np.float64]
    roles: NDArray[np.float64]


NOTHING = Centre(0.0, np.zeros(0), np.zeros(0))
"""The centre to begin with: no prices, and a bound of 0."""


def centre_of(needed: int, most: NDArray[np.int64], roles: NDArray[np.int64], pools: Sequence[Pool]) -> Centre:
    """The prices of a round of pricing, scaled so that they prove a bound, and that bound.

    Parameters
    ----------
    needed
        A lower bound on the total price of all replica sets, in any unit.
    most
        (slice types,) what no pattern on the slice type exceeds in value, and at least the slice's price, in the same
        unit.
    roles
        (roles,) the prices of roles, in the same unit.
    pools
        The GPUs and their prices.
    """
    dearest = max(pool.worth for pool in pools)
    over = max(float((pool.partitions @ most).max()) * dearest / pool.worth for pool in pools)
    return Centre(needed / over, most / over, roles / over) if over > 0 else NOTHING


def drawn(found: MasterDuals, centre: Centre, inward: float) -> MasterDuals:
    """A mix of the linear program's prices (weight 1 - ``inward``) and the central prices (weight ``inward``)."""
    return found._replace(slice_types=inward * centre.slice_types + (1 - inward) * found.slice_types,
                          roles=inward * centre.roles + (1 - inward) * found.roles)


def averaged(central: MasterDuals, found: MasterDuals) -> MasterDuals:
    """The solution ``found`` with its prices replaced by a running mean: the new prices have the weight
    ``SCHEDULE.pace``.
    """
    pairs = ((central.slice_types, found.slice_types), (central.roles, found.roles), (central.groups, found.groups))
    slice_types, roles, groups = (SCHEDULE.pace * new + (1 - SCHEDULE.pace) * old for old, new in pairs)
    return found._replace(slice_types=slice_types, roles=roles, groups=groups)

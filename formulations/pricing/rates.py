"""Patterns that carry rates: the rates that replicas on one slice can carry together.

If the rate that a replica can carry beside its neighbours does not depend on the rates routed to them, a pattern is a
vector of rates. A way of sharing that has such patterns, or bounds on them, makes a RateOracle.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN

GENEROUS = 1 + FORGIVEN
"""Factor by which tables of bounds loosen rates and latency budgets: more than all tolerances of the verifier."""
TRIED = 12
"""Patterns are taken from this number of the best levels."""
MOST_RATED = 3
"""Most rated patterns from one search."""
MOST_NAMED = 10
"""Most workloads that patterns distinguish, where not all patterns can be listed."""


class Member(NamedTuple):
    """One replica of a pattern: its group and how it runs."""

    group: int
    run: Running


Members = tuple[Member, ...]


class RatedPattern(NamedTuple):
    """A pattern, and the most requests/s of each of its replicas."""

    members: Members
    rps: tuple[float, ...]


class Worth(NamedTuple):
    """Prices (groups,): the value of a request/s that a replica carries, and a replica's own (negative: a cost).

    Requests/s beyond ``cap_rps`` have the value 1 each.
    """

    per_rps: Floats
    bonus: Floats
    cap_rps: Floats

    def of(self, rps: Floats) -> Floats:
        """The values of replicas that carry these rates, (groups, ...); negative where they carry nothing."""
        fields = (field.reshape(-1, *[1] * (rps.ndim - 1)) for field in self)
        per_rps, bonus, cap_rps = fields
        worth = rps + (per_rps - 1) * np.minimum(rps, cap_rps) + bonus
        return np.where(rps > 0, worth, -np.inf)


class Listing(NamedTuple):
    """Patterns as arrays: (patterns, groups) ``rps``, requests/s by the limits of bounds, and ``number`` of replicas.

    ``number`` may omit groups whose number of replicas is not limited; ``replicas`` (patterns,) counts all replicas.
    ``rated`` returns a pattern by its index.
    """

    rps: Floats
    number: Floats
    replicas: Floats
    rated: Callable[[int], RatedPattern]


def listing_of(patterns: Sequence[RatedPattern], groups: int) -> Listing:
    """The Listing of some patterns; ``groups`` is the number of groups."""
    rps, number = np.zeros((2, len(patterns), groups))
    for at, one in enumerate(patterns):
        for member, carried_rps in zip(*one, strict=True):
            rps[at, member.group] += carried_rps
            number[at, member.group] += 1
    return Listing(rps, number, number.sum(axis=1), patterns.__getitem__)


class PricedRates(NamedTuple):
    """The result of pricing: no pattern has a value above ``most``.

    The rates of ``patterns`` are those of bounds. Those of ``likely`` patterns are not known: they must be evaluated
    before plans use them. If there are no likely patterns, ``patterns`` are to be evaluated instead.
    """

    most: float
    patterns: Listing
    likely: Sequence[Members] = ()


class RateOracle(ABC):
    """The patterns of one slice type by the rates they carry. A way of sharing overrides the methods that it supports.

    Attributes
    ----------
    complete
        Whether every pattern that a plan may need is listed, so that pricing is not needed.
    by_sets
        Whether ``every`` and ``best`` give the sets of workloads that can share a slice with one replica each.
    hardest
        The greatest effort; higher numbers find no more.
    batches
        The batch sizes of the data, ascending.
    """

    complete: bool = False
    by_sets: bool = False
    hardest: int = 0
    batches: Sequence[int] = ()

    @abstractmethod
    def price(self, worth: Worth, floor: float, effort: int) -> PricedRates:
        """Find patterns of a value above a floor, and an upper bound on the value of all patterns.

        Parameters
        ----------
        worth
            Values of requests/s and of replicas.
        floor
            Only patterns of a higher value are wanted; the bound returned may be the floor.
        effort
            0 for the quickest search; higher numbers search longer.
        """

    def listed(self) -> Listing | None:
        """Patterns to begin with; None if there is no list."""
        return None

    def near(self, members: Members) -> list[Members]:
        """Neighbours of a pattern: units moved to another or a new replica, or another batch or group of a replica."""
        return []

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """All feasible sets of replicas on a slice, as groups in ascending order; None if too many, or not known.

        Also None if the time is over; the next call continues.
        """
        return None

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """An upper bound on the total requests/s of a set, and the best pattern found, None without one.

        Parameters
        ----------
        groups
            The groups of the replicas, in ascending order.
        effort
            0 for a quick bound; higher numbers search longer.
        """
        return np.inf, None


class ListedPatterns(RateOracle):
    """All patterns of a slice type, listed."""

    complete = True

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def listed(self) -> Listing:
        """All patterns."""
        return self.listing

    def price(self, worth: Worth, floor: float, effort: int) -> PricedRates:
        """Not needed, as all patterns are listed: an empty result."""
        return PricedRates(floor, self.listing._replace(rps=self.listing.rps[:0]))


def lowered(members: Members, late: Sequence[int], batches: Sequence[int]) -> Members | None:
    """A pattern with the next smaller batches for some members; None when one has the smallest already."""
    found = list(members)
    for at in late:
        smaller = [batch for batch in batches if batch < members[at].run.batch]
        if not smaller:
            return None
        found[at] = members[at]._replace(run=members[at].run._replace(batch=max(smaller)))
    return tuple(found)

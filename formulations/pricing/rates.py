"""Patterns that carry rates: what replicas on one slice carry together, whatever is routed to them.

Where what a replica carries beside its neighbours does not depend on what is routed, a pattern is a vector of rates. A
way of sharing that knows such patterns, or bounds on them, makes a RateOracle.
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
"""What tables grant to rates and latency budgets: more than the verifier's tolerances add up to."""
TRIED = 12
"""Levels, the best ones, from which patterns are taken."""
MOST_RATED = 3
"""Rated patterns from one search."""
MOST_NAMED = 10
"""Workloads that patterns name one by one, at most, where not all patterns can be listed."""


class Member(NamedTuple):
    """One replica of a pattern: its group and how it runs."""

    group: int
    run: Running


Members = tuple[Member, ...]


class RatedPattern(NamedTuple):
    """A pattern, and the requests/s that its replicas carry at most."""

    members: Members
    rps: tuple[float, ...]


class Worth(NamedTuple):
    """(groups,) what a request/s that a replica carries is worth, and what the replica is worth besides, or costs.

    Requests/s beyond ``cap_rps`` are worth 1 each.
    """

    per_rps: Floats
    bonus: Floats
    cap_rps: Floats

    def of(self, rps: Floats) -> Floats:
        """The worth of replicas that carry these rates, (groups, ...); below 0 where they carry nothing."""
        fields = (field.reshape(-1, *[1] * (rps.ndim - 1)) for field in self)
        per_rps, bonus, cap_rps = fields
        worth = rps + (per_rps - 1) * np.minimum(rps, cap_rps) + bonus
        return np.where(rps > 0, worth, -np.inf)


class Listing(NamedTuple):
    """Patterns: (patterns, groups) requests/s that they carry, as bounds grant them, and numbers of replicas.

    ``number`` may leave out groups whose number has no limits, ``replicas`` (patterns,) is of all. ``rated`` gives a
    pattern by its index.
    """

    rps: Floats
    number: Floats
    replicas: Floats
    rated: Callable[[int], RatedPattern]


def listing_of(patterns: Sequence[RatedPattern], groups: int) -> Listing:
    """A Listing of some patterns, for so many groups."""
    rps, number = np.zeros((2, len(patterns), groups))
    for at, one in enumerate(patterns):
        for member, carried_rps in zip(*one, strict=True):
            rps[at, member.group] += carried_rps
            number[at, member.group] += 1
    return Listing(rps, number, number.sum(axis=1), patterns.__getitem__)


class PricedRates(NamedTuple):
    """What pricing found: no pattern is worth more than ``most``.

    ``patterns`` carry what bounds grant them. ``likely`` may carry nearly as much and are to be judged before plans use
    them; where there are none, the patterns are such themselves.
    """

    most: float
    patterns: Listing
    likely: Sequence[Members] = ()


class RateOracle(ABC):
    """The patterns of one slice type by what they carry. A way of sharing overrides what it knows more of.

    Attributes
    ----------
    complete
        Whether every pattern that a plan may need is listed, so that none is left to be priced.
    by_sets
        Whether ``every`` and ``best`` know the sets of workloads that can share a slice with one replica each.
    hardest
        The greatest effort; from there on more effort finds no more.
    batches
        Those of the data, ascending.
    """

    complete: bool = False
    by_sets: bool = False
    hardest: int = 0
    batches: Sequence[int] = ()

    @abstractmethod
    def price(self, worth: Worth, floor: float, effort: int) -> PricedRates:
        """Patterns worth more than a floor, and what no pattern is worth more than.

        Parameters
        ----------
        worth
            What requests/s and replicas are worth.
        floor
            Patterns that are worth no more are of no interest; what no pattern is worth more than may be the floor.
        effort
            0 for the quickest search; every further step looks harder.
        """

    def listed(self) -> Listing | None:
        """Patterns to begin with; None where there is no list."""
        return None

    def near(self, members: Members) -> list[Members]:
        """Patterns like a given one: some of a replica's part is another's or a new one's, or batch or group differ."""
        return []

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """All sets that a slice can hold, as groups in ascending order; None where they are too many, or unknown.

        None also when time is over; the next call goes on from there.
        """
        return None

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """What a set carries together at most, in requests/s, and the best pattern found; None where none was.

        Parameters
        ----------
        groups
            The groups of the replicas, in ascending order.
        effort
            0 for a quick bound.
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
        """None: whoever has the list knows the dearest."""
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

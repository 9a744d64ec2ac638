"""Patterns that carry rates: the rates that replicas on one slice can carry together.

Suppose that the rate which a replica can carry beside its neighbours does not depend on the rates that are routed to
them. Then a pattern is a vector of rates. A way of sharing that has such patterns, or bounds on them, makes a
RateOracle.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.tolerances import FORGIVEN

GENEROUS = 1 + FORGIVEN
"""The factor by which tables of bounds raise rates and latency budgets. It exceeds all tolerances of the verifier."""
MOST_NAMED, MOST_PRICED = 10, 12
"""The most workloads that patterns distinguish on GPUs that replicas share under interference, and the most that
pricing is quick for.
"""

NEAR = 1e-5
"""A bound on values that exceeds a floor by at most this fraction counts as the floor, since bounds are rounded up."""
DIGITS = 12
"""Rows are compared after rounding to this number of decimal places."""


class Member(NamedTuple):
    """One replica of a pattern: its group and how it runs."""

    group: int
    run: Running


Members = tuple[Member, ...]


class RatedPattern(NamedTuple):
    """A pattern, and the highest requests/s of each of its replicas."""

    members: Members
    rps: tuple[float, ...]


class GroupPrices(NamedTuple):
    """Prices, each (groups,): ``per_rps`` of a request/s that a replica carries, and ``bonus`` of a replica itself.

    A negative ``bonus`` is a cost. Requests/s beyond ``cap_rps`` have the value 1 each. In a pattern, only ``counted``
    (groups,) replicas of a group have a positive bonus. Both limits may be infinite.
    """

    per_rps: Floats
    bonus: Floats
    cap_rps: Floats
    counted: Floats

    def of(self, rps: Floats) -> Floats:
        """(groups, ...) the values of replicas that carry the rates ``rps``; minus infinity where a rate is 0."""
        fields = (field.reshape(-1, *[1] * (rps.ndim - 1)) for field in (self.per_rps, self.bonus, self.cap_rps))
        per_rps, bonus, cap_rps = fields
        values = rps + (per_rps - 1) * np.minimum(rps, cap_rps) + bonus
        return np.where(rps > 0, values, -np.inf)

    def of_totals(self, patterns: "Listing", beyond: float = 1.0) -> Floats:
        """(patterns,) the values of patterns, where ``cap_rps`` limits the total of each group. Requests/s beyond it
        have the value ``beyond`` each.
        """
        values = beyond * patterns.rps + (self.per_rps - beyond) * np.minimum(patterns.rps, self.cap_rps)
        paid = np.where(self.bonus > 0, np.minimum(patterns.number, self.counted), patterns.number)
        return (values + paid * self.bonus).sum(axis=1)


class Listing(NamedTuple):
    """Patterns as arrays.

    ``rps`` (patterns, groups) are the highest requests/s that a pattern may carry, which holds for bounds. ``number``
    (patterns, groups) counts replicas; it may be 0 for groups whose number of replicas is not limited. ``replicas``
    (patterns,) counts all replicas. ``rated`` returns a pattern by its index.
    """

    rps: Floats
    number: Floats
    replicas: Floats
    rated: Callable[[int], RatedPattern]

    def only(self, rows: Ints) -> "Listing":
        """The patterns with the given indices."""
        return Listing(self.rps[rows], self.number[rows], self.replicas[rows], lambda at: self.rated(int(rows[at])))


def listing_of(patterns: Sequence[RatedPattern], groups: int) -> Listing:
    """Rated patterns as a Listing; ``groups`` is the number of groups."""
    rps, number = np.zeros((2, len(patterns), groups))
    for at, one in enumerate(patterns):
        for member, carried_rps in zip(*one, strict=True):
            rps[at, member.group] += carried_rps
            number[at, member.group] += 1
    return Listing(rps, number, number.sum(axis=1), patterns.__getitem__)


class PricedRates(NamedTuple):
    """The result of pricing. No pattern has a value above ``most``.

    ``patterns`` are for bounds: their rates are upper bounds. The performance models judge them before a plan uses
    them.
    """

    most: float
    patterns: Listing


class RateOracle:
    """The patterns of one slice type and the rates that they carry. A way of sharing that does not list all patterns
    derives a class that prices them.

    Attributes
    ----------
    listing
        All patterns that a plan may need; None if they are not listed, so that pricing is needed.
    coarse
        Whether its rates are those of a grid, so that a search with a finer grid may find and prove more.
    hardest
        The greatest effort that helps; higher numbers find no more.
    together
        Whether ``GroupPrices`` limit the requests/s of all replicas of a group together. Otherwise ``price`` limits
        those of each replica, and gives the bonus to every replica.
    """

    listing: Listing | None = None
    coarse: bool = False
    hardest: int = 0
    together: bool = True

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    @property
    def complete(self) -> bool:
        """Whether every pattern that a plan may need is listed."""
        return self.listing is not None

    def listed(self) -> Listing | None:
        """The patterns to begin with; None if there is no list."""
        return self.listing

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """Find patterns of a value above a floor, and an upper bound on the value of all patterns. Not to be called if
        all patterns are listed.

        Parameters
        ----------
        prices
            The prices of requests/s and of replicas.
        floor
            Patterns of at most this value are not wanted. The bound that is returned may be the floor.
        effort
            0 for the quickest search; higher numbers search longer.
        """
        raise NotImplementedError


class TooManyError(Exception):
    """Raised when there are more undominated rows than a list may have, or no time is left to find them."""


def undominated(features: Floats, most: int = SCHEDULE.kept, until: Deadline = NEVER) -> Ints:
    """The indices of the rows that no other row equals or exceeds in every column. Of equal rows one is returned.

    Rows are rounded to DIGITS and compared in blocks, large sums first: these dominate most others, and soon show
    whether too many are undominated.

    Raises
    ------
    TooManyError
        When there are more than ``most`` such rows, or the deadline ``until`` comes first.
    """
    rounded = np.round(features, DIGITS)
    order = np.argsort(-rounded.sum(axis=1), kind="stable")
    chosen: list[np.int64] = []
    begin, size = 0, SCHEDULE.block
    while begin < len(order):
        left = order[begin : begin + size]
        columns, open_, at = np.ascontiguousarray(rounded[left].T), np.ones(len(left), bool), 0
        while open_.any():
            if at == len(chosen):
                if at == most or until.over:
                    raise TooManyError
                chosen.append(left[int(open_.argmax())])
            open_ &= (columns > rounded[chosen[at], :, None]).any(axis=0)
            at += 1
            if open_.sum() < SCHEDULE.sparse * len(open_):
                left, columns = left[open_], columns[:, open_]
                open_ = np.ones(len(left), bool)
        begin, size = begin + size, 2 * size
    return np.array(chosen, int)

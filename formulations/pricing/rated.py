"""Patterns that carry rates: what replicas on one slice can carry together, whatever is routed to them.

Where what a replica carries beside its neighbours does not depend on what is routed, a pattern is a vector of rates. A
way of sharing that knows such patterns makes a RatedOracle; so does every slice with one replica.
"""

from typing import Protocol

import numpy as np

from provision.formulations.pricing.capacities import LOOSE, Member, RatedPattern, running_alone
from provision.formulations.pricing.listing import Listing
from provision.formulations.pricing.register import way_of
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats

MOST_NAMED = 10
"""Workloads that patterns name one by one, at most, where not all patterns can be listed."""


class RatedOracle(Protocol):
    """The patterns of one slice type: some that are listed, and the dearest ones at given prices.

    ``complete`` says that every pattern that a plan may need is listed, so that none is left to be priced; ``hardest``
    is the greatest effort of pricing that pays.
    """

    complete: bool
    hardest: int

    def listed(self) -> Listing:
        """Patterns to begin with."""
        ...

    def price(self, per_rps: Floats, bonus: Floats, floor: float, effort: int) -> tuple[Listing, float]:
        """Patterns worth more than a floor, and what no pattern is worth more than, at least the floor.

        Parameters
        ----------
        per_rps, bonus
            (groups,) the worth of a request/s that counts, at least 0, and that of a replica besides.
        floor
            Patterns that are worth no more are of no interest.
        effort
            0 for the quickest search; every further step looks harder.
        """
        ...


class ListedPatterns:
    """A RatedOracle whose patterns are all listed."""

    complete, hardest = True, 0

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def listed(self) -> Listing:
        """All patterns."""
        return self.listing

    def price(self, per_rps: Floats, bonus: Floats, floor: float, effort: int) -> tuple[Listing, float]:
        """None: whoever has the list knows the dearest."""
        return self.listing._replace(rps=self.listing.rps[:0]), floor


def rated_oracles_of(problem: Problem) -> list[tuple[int, RatedOracle]] | None:
    """The oracles of all slice types that can serve a workload, with their slice types; None where some has none."""
    found: list[tuple[int, RatedOracle]] = []
    for shared in problem.shareable:
        slice_type, make = problem.segments.slice_types[shared.slice_type], way_of(shared.data.kind).rated
        made = None if make is None else make(problem, slice_type, shared.data)
        if made is None:
            return None
        found.append((shared.slice_type, made))
    return found + [(slice_type, ListedPatterns(_alone(problem, slice_type)))
                    for slice_type in np.flatnonzero((problem.single_rps > 0).any(axis=0)).tolist()]


def _alone(problem: Problem, slice_type: int) -> Listing:
    """A replica of each group on a slice of its own."""
    single_rps = np.minimum(problem.single_rps[:, slice_type], [group.cap_rps for group in problem.groups])
    groups = np.flatnonzero(single_rps)
    rps = np.zeros((len(groups), len(problem.groups)))
    rps[np.arange(len(groups)), groups] = single_rps[groups] * LOOSE

    def rated(at: int) -> RatedPattern:
        group = int(groups[at])
        return RatedPattern((Member(group, running_alone(problem, group, slice_type)),), (float(rps[at, group]),))

    return Listing(rps, (rps > 0).astype(float), np.ones(len(groups)), rated)

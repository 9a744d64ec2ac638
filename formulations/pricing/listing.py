"""All patterns of slices, each with the requests/s that its replicas carry at once, whatever is routed to them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.capacities import LOOSE, Member, RatedPattern, running_alone
from provision.formulations.pricing.register import way_of
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints

MOST_KEPT = 2000
"""Rows that no other row replaces are sought up to this number."""
DIGITS = 12
"""Decimal places to which rows are compared."""


class TooManyError(Exception):
    """Raised when there are more patterns than can be listed."""


class Listing(NamedTuple):
    """Patterns: (patterns, groups) requests/s that they carry, as bounds grant them, and numbers of replicas.

    ``number`` is that of groups whose number is limited, ``replicas`` (patterns,) is of all. ``rated pattern`` gives a
    pattern by its index.
    """

    rps: Floats
    number: Floats
    replicas: Floats
    rated: Callable[[int], RatedPattern]


def listings_of(problem: Problem) -> list[tuple[int, Listing]] | None:
    """All patterns that may be needed to serve all rates, by slice type; None where they cannot be listed."""
    found = [
        (slice_type, _alone(problem, slice_type))
        for slice_type in np.flatnonzero((problem.single_rps > 0).any(axis=0)).tolist()
    ]
    for shared in problem.shareable:
        slice_type, data, listing = problem.segments.slice_types[shared.slice_type], shared.data, None
        if (made := way_of(data.kind).listing) is not None:
            listing = made(problem, slice_type, data)
        if listing is None:
            return None
        found.append((shared.slice_type, listing))
    return found


def _alone(problem: Problem, slice_type: int) -> Listing:
    """A replica of each group on a slice of its own."""
    groups = np.flatnonzero(problem.single_rps[:, slice_type])
    rps = np.zeros((len(groups), len(problem.groups)))
    rps[np.arange(len(groups)), groups] = problem.single_rps[groups, slice_type] * LOOSE

    def rated(at: int) -> RatedPattern:
        group = int(groups[at])
        return RatedPattern((Member(group, running_alone(problem, group, slice_type)),), (float(rps[at, group]),))

    return Listing(rps, (rps > 0).astype(float), np.ones(len(groups)), rated)


def undominated(features: Floats, most: int = MOST_KEPT) -> Ints:
    """Indices of the rows that no other row equals or exceeds everywhere; one of each set of equal rows.

    Raises
    ------
    TooManyError
        When there are more than ``most``.
    """
    rounded = np.round(features, DIGITS)
    left = np.argsort(-rounded.sum(axis=1), kind="stable")
    chosen: list[np.int64] = []
    while len(left):
        if len(chosen) == most:
            raise TooManyError
        chosen.append(left[0])
        left = left[(rounded[left] > rounded[left[0]]).any(axis=1)]
    return np.array(chosen, int)



"""All contents of slices, each with the requests/s that its replicas carry at once, whatever is routed to them."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.capacities import LOOSE, Member, Promise, running_alone
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints

MODULES = {"gpulets": "provision.formulations.pricing.temporal.ways"}
"""Where the contents of a kind of performance data are listed."""
MOST_KEPT = 2000
"""Rows that no other row replaces are sought up to this number."""
DIGITS = 12
"""Decimal places to which rows are compared."""


class TooManyError(Exception):
    """Raised when there are more contents than can be listed."""


class Listing(NamedTuple):
    """Contents: (contents, groups) requests/s that they carry, as bounds grant them, and numbers of replicas.

    ``number`` is that of groups whose number is limited, ``replicas`` (contents,) is of all. ``promise`` gives a
    content by its index.
    """

    rps: Floats
    number: Floats
    replicas: Floats
    promise: Callable[[int], Promise]


def listings_of(problem: Problem) -> list[tuple[int, Listing]] | None:
    """All contents that may be needed to serve all rates, by slice kind; None where they cannot be listed."""
    found = [(kind, _alone(problem, kind)) for kind in np.flatnonzero((problem.single_rps > 0).any(axis=0)).tolist()]
    for shared in problem.shareable:
        kind, data, listing = problem.segments.kinds[shared.kind], shared.data, None
        if data.kind in MODULES:
            listing = import_module(MODULES[data.kind]).listing(problem, kind, data)
        if listing is None:
            return None
        found.append((shared.kind, listing))
    return found


def _alone(problem: Problem, kind: int) -> Listing:
    """A replica of each group on a slice of its own."""
    groups = np.flatnonzero(problem.single_rps[:, kind])
    rps = np.zeros((len(groups), len(problem.groups)))
    rps[np.arange(len(groups)), groups] = problem.single_rps[groups, kind] * LOOSE

    def promise(at: int) -> Promise:
        group = int(groups[at])
        return Promise((Member(group, running_alone(problem, group, kind)),), (float(rps[at, group]),))

    return Listing(rps, (rps > 0).astype(float), np.ones(len(groups)), promise)


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



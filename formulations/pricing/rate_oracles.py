"""The RateOracles of a Problem: those of its ways of sharing, and general ones where a way of sharing has none."""

import numpy as np

from provision.formulations.pricing.oracle import PatternOracle, Running
from provision.formulations.pricing.rates import (
    GENEROUS,
    MOST_RATED,
    TRIED,
    ListedPatterns,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    Worth,
    listing_of,
)
from provision.formulations.pricing.register import oracle_of, way_of
from provision.formulations.search.problem import Problem, Shareable

STEPS = 1000
"""If patterns are priced by roles, the most valuable role has this value; values are whole numbers."""
EFFORT = 1
"""The effort with which RoleRates searches for the best pattern."""


class RoleRates(RateOracle):
    """A RateOracle made from a PatternOracle. A replica with a role counts as carrying the upper end of the role's
    interval of rates.
    """

    def __init__(self, problem: Problem, oracle: PatternOracle) -> None:
        self.problem, self.oracle = problem, oracle
        self.groups = [[at for at, group in enumerate(problem.groups) if group.workload_class == role.workload_class]
                       for role in problem.roles]

    def price(self, worth: Worth, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        upto = np.array([role.upto_rps for role in self.problem.roles]) * GENEROUS
        each = np.maximum(worth.of(np.broadcast_to(upto, (len(worth.bonus), len(upto)))), 0.0)
        best = [groups[int(each[groups, at].argmax())] for at, groups in enumerate(self.groups)]
        values = each[best, np.arange(len(best))]
        scale = STEPS / max(values.max(initial=0.0), 1e-9)
        priced = self.oracle.price(np.ceil(values * scale).astype(np.int64), 0, EFFORT)
        patterns = sorted(priced.patterns, key=lambda one: -int(values[list(one)].sum()))[:TRIED]
        found = []
        for pattern in patterns:
            runs = self.oracle.running(pattern)
            if runs:
                members = tuple(Member(best[role], run) for role, run in zip(pattern, runs, strict=True))
                found.append(RatedPattern(members, tuple(upto[list(pattern)].tolist())))
        listing = listing_of(found[:MOST_RATED], len(worth.per_rps))
        return PricedRates(priced.most / scale, listing, [one.members for one in found])


def rates_of(problem: Problem) -> dict[int, list[RateOracle]] | None:
    """The RateOracles of each slice type; None if the patterns of some slice type do not carry rates.

    For objective max_throughput, these are the slice types that replicas may share; RoleRates stands in where a way of
    sharing has no RateOracle. For least cost, slices with a single replica are included.
    """
    found: dict[int, list[RateOracle]] = {}
    for shared in problem.shareable:
        made = _made(problem, shared)
        if made is None and not problem.fills:
            return None
        found.setdefault(shared.slice_type, []).extend([] if made is None else [made])
    if not problem.fills:
        for at in np.flatnonzero((problem.single_rps > 0).any(axis=0)).tolist():
            found.setdefault(at, []).append(ListedPatterns(_alone(problem, at)))
    return found


def _made(problem: Problem, shared: Shareable) -> RateOracle | None:
    """The RateOracle of one shareable slice type for one performance file; None if there is none."""
    make = way_of(shared.data.kind).rates
    made: RateOracle | None = None
    if make is not None:
        made = make(problem, problem.segments.slice_types[shared.slice_type], shared.data)
    if made is None and problem.fills:
        oracle = oracle_of(problem, shared)
        made = None if oracle is None else RoleRates(problem, oracle)
    return made


def running_alone(problem: Problem, at: int, slice_type: int) -> Running:
    """The best operating point of a replica of group ``at`` that is alone on a slice."""
    segments, one = problem.segments, problem.groups[at].members[0]
    return Running(int(segments.model[one, slice_type]), int(segments.batch[one, slice_type]),
                   int(segments.processes[one, slice_type]), 1.0)


def _alone(problem: Problem, slice_type: int) -> Listing:
    """The patterns of one replica alone on a slice: one pattern for each group that the slice can serve."""
    single_rps = np.minimum(problem.single_rps[:, slice_type], [group.cap_rps for group in problem.groups])
    groups = np.flatnonzero(single_rps)
    rps = np.zeros((len(groups), len(problem.groups)))
    rps[np.arange(len(groups)), groups] = single_rps[groups] * GENEROUS

    def rated(at: int) -> RatedPattern:
        group = int(groups[at])
        return RatedPattern((Member(group, running_alone(problem, group, slice_type)),), (float(rps[at, group]),))

    return Listing(rps, (rps > 0).astype(float), np.ones(len(groups)), rated)

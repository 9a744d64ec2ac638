"""The RateOracles of a Problem: those of its ways of sharing, and general ones where a way of sharing has none."""

import math

import numpy as np

from provision.formulations.pricing.oracle import Running, oracle_of, way_of
from provision.formulations.pricing.rates import (
    GENEROUS,
    GroupPrices,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.search.problem import Problem, Shareable
from provision.models.base.clock import NEVER, Deadline

STEPS = 10**6
"""If patterns are priced by roles, the most valuable role has this value; values are whole numbers."""


class RoleRates(RateOracle):
    """A RateOracle made from a PatternOracle. A replica with a role counts as carrying the upper end of the role's
    interval of rates.

    Attributes
    ----------
    oracle
        The PatternOracle; None if the slice type cannot be shared.
    upto_rps
        (groups, roles) the upper ends of the roles' intervals, in requests/s.
    groups
        For each role, the groups of its class.
    """

    coarse, together = True, False

    def __init__(self, problem: Problem, shared: Shareable) -> None:
        self.problem, self.oracle = problem, oracle_of(problem, shared)
        upto_rps = np.array([role.upto_rps for role in problem.roles])
        most_rps = np.inf if problem.fills else np.array([[group.asked_rps] for group in problem.groups])
        self.upto_rps = np.minimum(upto_rps, most_rps) * GENEROUS * np.ones((len(problem.groups), 1))
        self.groups = [[at for at, group in enumerate(problem.groups) if group.workload_class == role.workload_class]
                       for role in problem.roles]

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. For objective max_throughput, the floor is not used."""
        if self.oracle is None:
            return PricedRates(floor, listing_of([], len(prices.per_rps)))
        each = np.maximum(prices.of(self.upto_rps), 0.0)
        best = [several[int(each[several, at].argmax())] for at, several in enumerate(self.groups)]
        values = each[best, np.arange(len(best))]
        scale = STEPS / max(values.max(initial=0.0), 1e-9)
        above = 0 if self.problem.fills else math.ceil(floor * scale)
        priced = self.oracle.price(np.ceil(values * scale).astype(np.int64), above)
        found = []
        for pattern in sorted(priced.patterns, key=lambda one: -int(values[list(one)].sum()))[:SCHEDULE.tried]:
            roles, runs = list(pattern), self.oracle.running(pattern)
            if runs:
                own = [best[role] for role in roles]
                members = tuple(Member(group, run) for group, run in zip(own, runs, strict=True))
                found.append(RatedPattern(members, tuple(self.upto_rps[own, roles].tolist())))
        return PricedRates(priced.most / scale, listing_of(found, len(prices.per_rps)))


def rates_of(problem: Problem, until: Deadline = NEVER) -> list[tuple[int, RateOracle]]:
    """Pairs (slice type, RateOracle) for all slice types.

    For objective max_throughput, these are the slice types that replicas may share. For least cost, slices with a
    single replica are included. RoleRates stands in where a way of sharing has no RateOracle. A way of sharing that
    lists all its patterns must have listed them at the deadline ``until``; otherwise it has no RateOracle.
    """
    made = [(shared.slice_type, rate_oracle(problem, shared, until)) for shared in problem.shareable]
    found = [(at, one) for at, one in made if one is not None]
    if not problem.fills:
        alone = np.flatnonzero((problem.single_rps > 0).any(axis=0)).tolist()
        found += [(at, RateOracle(_alone(problem, at))) for at in alone]
    return found


def rate_oracle(problem: Problem, shared: Shareable, until: Deadline) -> RateOracle | None:
    """The RateOracle of one shareable slice type for one performance file; None if it cannot be shared."""
    make = way_of(shared.data.kind).rates
    made: RateOracle | None = None
    if make is not None:
        made = make(problem, problem.segments.slice_types[shared.slice_type], shared.data, until)
    return RoleRates(problem, shared) if made is None and problem.roles else made


def running_alone(problem: Problem, workload: int, slice_type: int) -> Running:
    """The best operating point of a replica of a workload (by index) that is alone on a slice."""
    segments = problem.segments
    return Running(int(segments.model[workload, slice_type]), int(segments.batch[workload, slice_type]),
                   int(segments.processes[workload, slice_type]), 1.0)


def _alone(problem: Problem, slice_type: int) -> Listing:
    """The patterns of one replica alone on a slice: one pattern for each group that the slice can serve."""
    groups = problem.groups
    single_rps = np.minimum(problem.single_rps[:, slice_type], [group.cap_rps for group in groups]) * GENEROUS
    return listing_of([RatedPattern((Member(at, running_alone(problem, groups[at].members[0], slice_type)),), (rps,))
                       for at, rps in enumerate(single_rps.tolist()) if rps], len(groups))

"""What replicas could carry together on one slice, whatever is routed to them: patterns for the most throughput.

At prices of requests/s and of replicas, the capacities of a slice type tell what no pattern is worth more than, and
which patterns may come near; these are then made to hold.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.oracle import PatternOracle, Running
from provision.formulations.pricing.register import oracles_of, way_of
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LOOSE = 1 + FORGIVEN
"""What tables grant to rates and latency budgets: more than the verifier's tolerances add up to."""
TRIED = 12
"""Levels, the best ones, from which patterns are taken."""
MOST_RATED = 3
"""Rated patterns from one search."""
STEPS = 1000
"""Whole-number worth of the dearest role, where patterns are priced by roles."""
EFFORT = 1
"""How hard such oracles look for the best pattern."""


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


class Capacities(Protocol):
    """The patterns of several replicas on a slice type by what these could carry, all at once.

    ``batches`` are those of its data, ascending.
    """

    batches: Sequence[int]

    def price(self, worth: Worth) -> tuple[float, list[RatedPattern], list[Members]]:
        """An upper bound on the worth of any pattern, rated patterns of about that worth, patterns that may come near
        it.
        """
        ...

    def near(self, members: Members) -> list[Members]:
        """Patterns like a given one: some of a replica's part is another's or a new one's, or batch or group differ."""
        ...


class Sets(Protocol):
    """The sets of workloads that can share a slice with one replica each, every set by itself."""

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """All sets that a slice can hold, as groups in ascending order; None where they are too many.

        None also when time is over; the next call goes on from there.
        """
        ...

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """What a set carries together at most, in requests/s, and the best pattern found; None where none was.

        Parameters
        ----------
        groups
            The groups of the replicas, in ascending order.
        effort
            0 for a quick bound; from ``hardest`` on more effort finds no more.
        """
        ...

    @property
    def hardest(self) -> int:
        """The greatest effort."""
        ...


class RoleCapacities:
    """Capacities by the roles of an oracle: each is worth what the upper end of its step of rates is."""

    batches: Sequence[int] = ()

    def __init__(self, problem: Problem, oracle: PatternOracle) -> None:
        self.problem, self.oracle = problem, oracle
        self.groups = [[at for at, group in enumerate(problem.groups) if group.workload_class == role.workload_class]
                       for role in problem.roles]

    def price(self, worth: Worth) -> tuple[float, list[RatedPattern], list[Members]]:
        """See ``Capacities.price``."""
        upto = np.array([role.upto_rps for role in self.problem.roles]) * LOOSE
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
        return priced.most / scale, found[:MOST_RATED], [one.members for one in found]

    def near(self, members: Members) -> list[Members]:
        """See ``Capacities.near``; roles know none."""
        return []


def lowered(members: Members, late: Sequence[int], batches: Sequence[int]) -> Members | None:
    """A pattern with the next smaller batches for some members; None when one has the smallest already."""
    found = list(members)
    for at in late:
        smaller = [batch for batch in batches if batch < members[at].run.batch]
        if not smaller:
            return None
        found[at] = members[at]._replace(run=members[at].run._replace(batch=max(smaller)))
    return tuple(found)


def running_alone(problem: Problem, at: int, slice_type: int) -> Running:
    """How a replica of a group runs best with a slice to itself."""
    segments, one = problem.segments, problem.groups[at].members[0]
    return Running(int(segments.model[one, slice_type]), int(segments.batch[one, slice_type]),
                   int(segments.processes[one, slice_type]), 1.0)


def sets_of(problem: Problem) -> dict[int, Sets] | None:
    """The sets of every slice type that replicas may share; None where they are not to be told apart on some slice
    type.
    """
    found: dict[int, Sets] = {}
    for shared in problem.shareable:
        slice_type, data = problem.segments.slice_types[shared.slice_type], shared.data
        sets = way_of(data.kind).sets
        made = None if sets is None else sets(problem, slice_type, data)
        if made is None or shared.slice_type in found:
            return None
        found[shared.slice_type] = made
    return found


def capacities_of(problem: Problem) -> dict[int, list[Capacities]]:
    """What the slices that replicas may share could carry, by slice type."""
    found: dict[int, list[Capacities]] = {}
    for shared in problem.shareable:
        slice_type, data = problem.segments.slice_types[shared.slice_type], shared.data
        capacities = way_of(data.kind).capacities
        if capacities is not None:
            entry = problem.instance.fleet[slice_type.entry]
            made = capacities(problem.instance, entry, slice_type.profile, data, problem.groups)
            found.setdefault(shared.slice_type, []).extend([] if made is None else [made])
        else:
            found[shared.slice_type] = [
                RoleCapacities(problem, one) for one in oracles_of(problem).get(shared.slice_type, [])
            ]
    return found

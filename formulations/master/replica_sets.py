"""Replica sets: replicas that together carry a workload's rate, within its limits on the number of replicas.

Pricing finds the cheapest replica set of a workload at given prices (a knapsack problem). In plans, a role is credited
with the rate that all its replicas can carry. In bounds, it is credited with the highest rate of any replica that has
the role (`Role`). Limits on the rate per GPU apply to each replica by itself, since a replica set does not say which
slices are on the same GPU.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.role_columns import ReplicaSet
from provision.formulations.pricing.alone.knapsack import CheapestSet, Knapsack
from provision.formulations.search.problem import Group, Problem
from provision.models.base.tolerances import BOUNDARY, DUST, LOOSE, MISSING
from provision.models.problem.workload import LEAST_RPS

COUNTED = 128
"""Bounds ignore limits on the number of replicas above this."""
PROHIBITIVE = 10**15
"""The price of a role whose credit in plans is 0, so that replica sets for plans do not use it."""


class Choices(NamedTuple):
    """The replicas that some similar groups can choose from for their replica sets.

    ``rows`` (choices,) are rows of the master program: slice types, for replicas alone on a slice, and then roles.
    ``planned_rps`` and ``bounded_rps`` (choices,) are the rates that a replica is credited with in plans and in bounds.
    The knapsack counts the replicas of a set up to the number ``counted``. If ``exact``, that is the largest number
    allowed; else it is the least number.
    """

    groups: tuple[int, ...]
    rows: NDArray[np.int64]
    planned_rps: NDArray[np.float64]
    bounded_rps: NDArray[np.float64]
    counted: int
    exact: bool


class PricedReplicaSets(NamedTuple):
    """The cheapest replica sets of one workload of a group: ``loose`` for bounds, ``strict`` for plans (None if there
    is none).

    ``bound`` is a lower bound on the price of any replica set of the workload, in whole-number units.
    """

    group: int
    bound: int
    loose: ReplicaSet
    strict: ReplicaSet | None


def forced_roles(problem: Problem) -> dict[int, int]:
    """The roles, by index of the group, of groups whose only possible replica set is one replica on a shared slice."""
    roles = {role[:3]: at for at, role in enumerate(problem.roles)}
    found = {}
    for at, group in enumerate(problem.groups):
        if group.most == 1 and not problem.alone_rps[at].any():
            role = roles.get((group.models, group.slo_ms, group.rate_rps))
            if role is not None:
                found[at] = role
    return found


def choices_by_group(problem: Problem, left_out: frozenset[int]) -> list[Choices]:
    """The choices of all groups, except those whose indices are ``left_out``."""
    slice_types = len(problem.segments.slice_types)
    by_class: dict[tuple[tuple[str, ...], float], list[int]] = {}
    for at, role in enumerate(problem.roles):
        by_class.setdefault(role.workload_class, []).append(at)
    alike: dict[tuple[object, ...], list[int]] = {}
    for at, group in enumerate(problem.groups):
        if at not in left_out:
            exact = group.most <= COUNTED
            counted = int(group.most) if exact else group.least
            idle = group.rate_rps == 0
            key = (group.workload_class, group.cap_rps, counted, exact, idle, problem.alone_rps[at].tobytes())
            alike.setdefault(key, []).append(at)
    return [_choices_of(problem, tuple(groups), by_class.get(problem.groups[groups[0]].workload_class, []), slice_types)
            for groups in alike.values()]


def _choices_of(problem: Problem, groups: tuple[int, ...], shared: list[int], slice_types: int) -> Choices:
    """The choices of similar groups: replicas alone on a slice, and the roles ``shared`` of their class."""
    group, alone = problem.groups[groups[0]], np.flatnonzero(problem.alone_rps[groups[0]])
    alone_rps = problem.alone_rps[groups[0]][alone]
    planned = np.array([problem.roles[at].rate_rps for at in shared])
    upto = np.array([problem.roles[at].upto_rps for at in shared])
    # A replica that carries at least (1 - BOUNDARY) of the end of an interval has the role of the next interval, if
    # any.
    ends = (upto > planned) & (upto < upto.max(initial=0.0))
    bounded = upto * np.where(ends, 1 - BOUNDARY, 1 + LOOSE)
    exact = group.most <= COUNTED
    return Choices(
        groups, np.concatenate([alone, slice_types + np.array(shared, int)]).astype(int),
        _credits(np.concatenate([alone_rps, planned]), group),
        _credits(np.concatenate([alone_rps * (1 + LOOSE), bounded]), group),
        int(group.most) if exact else group.least, exact,
    )


def _credits(rps: NDArray[np.float64], group: Group) -> NDArray[np.float64]:
    return np.maximum(np.minimum(rps, group.cap_rps * (1 + LOOSE)), LEAST_RPS)


def priced_replica_sets(
    problem: Problem, choices_of_groups: list[Choices], prices: NDArray[np.int64]
) -> Iterator[PricedReplicaSets | None]:
    """The cheapest replica sets of every group at whole-number prices of rows; None for a group that has none.

    The groups come in the order of ``choices_of_groups``.
    """
    for choices in choices_of_groups:
        loose = Knapsack(choices.bounded_rps, prices[choices.rows], choices.counted, choices.exact)
        useless = (choices.planned_rps <= LEAST_RPS) & (problem.groups[choices.groups[0]].rate_rps > 0)
        strict = Knapsack(
            choices.planned_rps, np.where(useless, PROHIBITIVE, prices[choices.rows]), choices.counted, choices.exact
        )
        for at in choices.groups:
            group = problem.groups[at]
            found = loose.cheapest(group.rate_rps * (1 - MISSING), group.least)
            if found is None:
                yield None
                continue
            if _plannable(choices, group, found):
                yield PricedReplicaSets(at, found.bound, _use(at, choices, found), _use(at, choices, found))
                continue
            exact = strict.cheapest(group.rate_rps, group.least)
            planned = _use(at, choices, exact) if exact is not None and _plannable(choices, group, exact) else None
            yield PricedReplicaSets(at, found.bound, _use(at, choices, found), planned)


def _plannable(choices: Choices, group: Group, replica_set: CheapestSet) -> bool:
    """Whether a plan can use a replica set.

    With each replica credited by its ``planned_rps``, the set must carry the group's whole rate, and it must have no
    more replicas than allowed.
    """
    useful = choices.planned_rps > LEAST_RPS if group.rate_rps > 0 else np.ones(len(replica_set.counts), bool)
    carried_rps = float(replica_set.counts[useful] @ choices.planned_rps[useful])
    enough = carried_rps >= group.rate_rps * (1 - 2 * DUST)
    return enough and int(replica_set.counts.sum()) <= group.most and not replica_set.counts[~useful].any()


def _use(group: int, choices: Choices, replica_set: CheapestSet) -> ReplicaSet:
    taken = np.flatnonzero(replica_set.counts)
    return ReplicaSet(group, tuple((int(choices.rows[at]), int(replica_set.counts[at])) for at in taken))

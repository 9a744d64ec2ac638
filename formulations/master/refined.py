"""Refines the grid of rates of a Generation where wide intervals of rates weaken the bound.

In a bound, a role is credited with the upper end of its interval of rates. If the linear program may use a role with a
wide interval, the credit is loose. So the interval is divided, and columns are generated again, beginning with the
known columns. At first a new role has the price of the role whose interval was divided, so the bound so far stays
valid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from provision.formulations.master.centre import NOTHING, Centre
from provision.formulations.master.generation import Generation
from provision.formulations.master.role_columns import ReplicaSet
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.problem import Problem
from provision.formulations.search.roles import Role

Finer = dict[tuple[tuple[str, ...], float], frozenset[float]]
"""Rates in requests/s at which intervals are divided, by workload class."""


def refined(coarse: Generation) -> Generation | None:
    """A Generation with finer intervals where the linear program of bounds uses wide ones; None if it uses no wide
    interval.

    Parameters
    ----------
    coarse
        A Generation whose bound is close to the value of its linear program.
    """
    problem = coarse.problem
    cuts = _cuts(coarse) if len(problem.roles) < SCHEDULE.most else {}
    if not cuts:
        return None
    finer = {one: cuts.get(one, frozenset()) | problem.finer.get(one, frozenset()) for one in {*cuts, *problem.finer}}
    finest = Problem(problem.instance, problem.groups, finer=finer)
    fine = Generation(finest, centre=_inner(coarse, finest) if coarse.centre.value > 0 else NOTHING,
                      executor=coarse.pricing.executor)
    _hand_on(coarse, fine)
    kept = {_key(problem.roles[at]) for at in np.flatnonzero(coarse.breakpoints.jumps)}
    fine.breakpoints.jump([at for at, role in enumerate(finest.roles) if _key(role) in kept])
    fine.effort, fine.scale = min(coarse.effort, SCHEDULE.firm), coarse.scale
    return fine


def _cuts(generation: Generation) -> Finer:
    """The middles of wide intervals, in requests/s by workload class. Only the roles of replica sets that the linear
    program uses, or nearly uses, count.
    """
    problem, program = generation.problem, generation.program
    slice_types, found = len(problem.segments.slice_types), program.relaxed()
    if found is None:
        return {}
    highest_rps = {one: max(group.rate_rps for group in groups) for one, groups in problem.classes.items()}
    cuts: defaultdict[tuple[tuple[str, ...], float], set[float]] = defaultdict(set)
    reduced = found.reduced[program.others + len(program.patterns) :]
    for at in {
        row - slice_types
        for replica_set, cost in zip(program.replica_sets, reduced, strict=True)
        if cost <= SCHEDULE.used
        for row, _ in replica_set.uses
        if row >= slice_types
    }:
        role = problem.roles[at]
        end_rps = min(role.upto_rps, highest_rps[role.workload_class])
        if end_rps - role.rate_rps > SCHEDULE.close * end_rps:
            cuts[role.workload_class].add((role.rate_rps + end_rps) / 2)
    return {one: frozenset(rates) for one, rates in cuts.items()}


def _inner(coarse: Generation, fine: Problem) -> Centre:
    """Central prices for the finer grid: each role has the price of the role from whose interval it was made."""
    order = sorted(range(len(coarse.problem.roles)), key=lambda at: _key(coarse.problem.roles[at]))
    keys = [_key(coarse.problem.roles[at]) for at in order]
    at = [order[bisect_right(keys, _key(role)) - 1] for role in fine.roles]
    return coarse.centre._replace(roles=coarse.centre.roles[at])


def _hand_on(source: Generation, target: Generation) -> None:
    """Add the source's patterns, and its replica sets that plans may use, to a Generation that has all roles of the
    source.
    """
    number = {_key(role): at for at, role in enumerate(target.problem.roles)}
    to = [number[_key(role)] for role in source.problem.roles]
    slice_types, oracles = len(source.problem.segments.slice_types), oracles_of(target.problem)
    for slice_type, pattern in list(source.program.patterns):
        handed = tuple(sorted(to[role] for role in pattern))
        if any(oracle.running(handed) is not None for oracle in oracles.get(slice_type, [])):
            target.program.add_patterns(slice_type, [handed])
    for replica_set, strict in zip(source.program.replica_sets, source.program.strict, strict=True):
        if strict:
            uses = (
                (row if row < slice_types else slice_types + to[row - slice_types], many)
                for row, many in replica_set.uses
            )
            target.program.add_replica_set(ReplicaSet(replica_set.group, tuple(sorted(uses))), strict=True)


def _key(role: Role) -> tuple[tuple[str, ...], float, float]:
    return role.models, role.slo_ms, role.rate_rps

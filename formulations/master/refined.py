"""Finer steps of rates where a bound stands on coarse ones: a Generation with more roles, begun with known columns.

A bound credits a role with the upper end of its step of rates. Where the linear program may use a role whose step is
wide, that credit is loose: the step is cut, and columns are generated again. A finer role has the price of the step
that it is cut from to begin with, so that the bound so far holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from provision.formulations.master.generation import Generation
from provision.formulations.master.inner import NOTHING, Inner
from provision.formulations.master.program import CoverUse
from provision.formulations.search.problem import Problem
from provision.formulations.search.roles import Role

FINE = 0.005
"""The part of its upper end below which a step of rates is not cut any more."""
PIECES = 2
"""Parts into which a step is cut."""
USED = 0.002
"""Covers may be used whose reduced cost is at most this, in prices of the dearest GPU."""
HARD = 1
"""The effort of the oracles to begin with, at most."""
MOST_ROLES = 2000
"""With more roles nothing is cut."""

Finer = dict[tuple[tuple[str, ...], float], frozenset[float]]
"""Further rates, in requests/s, by class of workloads."""


def refined(coarse: Generation) -> Generation | None:
    """A Generation whose roles have finer steps where the linear program of bounds uses wide ones; None without such.

    Parameters
    ----------
    coarse
        A Generation that is near its bound.
    """
    problem = coarse.problem
    cuts = _cuts(coarse) if len(problem.roles) < MOST_ROLES else {}
    if not cuts:
        return None
    finer = {one: cuts.get(one, frozenset()) | problem.finer.get(one, frozenset()) for one in {*cuts, *problem.finer}}
    finest = Problem(problem.instance, problem.groups, finer=finer)
    fine = Generation(finest, inner=_inner(coarse, finest) if coarse.inner.value > 0 else NOTHING)
    _hand_on(coarse, fine)
    kept = {_key(problem.roles[at]) for at in np.flatnonzero(coarse.knots.jumps)}
    fine.knots.jump([at for at, role in enumerate(finest.roles) if _key(role) in kept])
    fine.effort, fine.scale = min(coarse.effort, HARD), coarse.scale
    return fine


def _cuts(generation: Generation) -> Finer:
    """Rates that cut the wide steps of roles in covers that the linear program uses, or might use as well."""
    problem, program = generation.problem, generation.program
    kinds, found = len(problem.segments.kinds), program.relaxed()
    if found is None:
        return {}
    highest_rps = {one: max(group.rate_rps for group in groups) for one, groups in problem.classes.items()}
    cuts: defaultdict[tuple[tuple[str, ...], float], set[float]] = defaultdict(set)
    reduced = found.reduced[program.others + len(program.contents) :]
    for at in {row - kinds for cover, cost in zip(program.covers, reduced, strict=True) if cost <= USED
               for row, _ in cover.uses if row >= kinds}:
        role = problem.roles[at]
        end_rps = min(role.upto_rps, highest_rps[role.workload_class])
        if end_rps - role.rate_rps > FINE * end_rps:
            cuts[role.workload_class] |= set(np.linspace(role.rate_rps, end_rps, PIECES + 1)[1:-1].tolist())
    return {one: frozenset(rates) for one, rates in cuts.items()}


def _inner(coarse: Generation, fine: Problem) -> Inner:
    """The inner prices of a Generation for finer steps: each role has the price of the step that it is cut from."""
    order = sorted(range(len(coarse.problem.roles)), key=lambda at: _key(coarse.problem.roles[at]))
    keys = [_key(coarse.problem.roles[at]) for at in order]
    at = [order[bisect_right(keys, _key(role)) - 1] for role in fine.roles]
    return coarse.inner._replace(roles=coarse.inner.roles[at])


def _hand_on(source: Generation, target: Generation) -> None:
    """Give contents, and covers that plans may use, to a Generation that has all roles of the source."""
    number = {_key(role): at for at, role in enumerate(target.problem.roles)}
    to = [number[_key(role)] for role in source.problem.roles]
    kinds = len(source.problem.segments.kinds)
    for kind, content in list(source.program.contents):
        target.program.add_contents(kind, [tuple(sorted(to[role] for role in content))])
    for cover, strict in source.program.covers.items():
        if strict:
            uses = ((row if row < kinds else kinds + to[row - kinds], many) for row, many in cover.uses)
            target.program.add_cover(CoverUse(cover.group, tuple(sorted(uses))), strict=True)


def _key(role: Role) -> tuple[tuple[str, ...], float, float]:
    return role.models, role.slo_ms, role.rate_rps

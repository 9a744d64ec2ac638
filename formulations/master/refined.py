"""Finer steps of rates where a bound stands on coarse ones: a Generation with more roles, begun with known columns.

A bound credits a role with the upper end of its step of rates. Where the linear program uses a role whose step is
wide, that credit is loose: the step is cut, and columns are generated again. Dominance orders the roles, so finer steps
never make a bound worse.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from provision.formulations.master.generation import Generation
from provision.formulations.master.program import CoverUse
from provision.models.contents.problem import Problem
from provision.models.contents.roles import Role

FINE = 0.005
"""The part of its upper end below which a step of rates is not cut any more."""
PIECES = 4
"""Parts into which a step is cut."""
USED = 1e-6
"""The least part of a cover that counts as used."""
MOST_ROLES = 600
"""With more roles nothing is cut."""

Finer = dict[tuple[tuple[str, ...], float], frozenset[float]]
"""Further rates, in requests/s, by class of workloads."""


def refined(coarse: Generation) -> Generation | None:
    """A Generation whose roles have finer steps where the linear program of bounds uses wide ones; None without such.

    Parameters
    ----------
    coarse
        A Generation that has converged.
    """
    problem = coarse.problem
    cuts = _cuts(coarse) if len(problem.roles) < MOST_ROLES else {}
    if not cuts:
        return None
    finer = {one: cuts.get(one, frozenset()) | problem.finer.get(one, frozenset()) for one in {*cuts, *problem.finer}}
    fine = Generation(Problem(problem.instance, problem.groups, finer=finer))
    _hand_on(coarse, fine)
    fine.effort = coarse.effort
    return fine


def _cuts(generation: Generation) -> Finer:
    """Rates that cut the wide steps of roles in use."""
    found, kinds = generation.last, len(generation.problem.segments.kinds)
    if found is None:
        return {}
    cuts: defaultdict[tuple[tuple[str, ...], float], set[float]] = defaultdict(set)
    parts = found.parts[generation.program.others + len(generation.program.contents) :]
    for cover, part in zip(generation.program.covers, parts, strict=False):
        for row, _ in cover.uses if part > USED else ():
            role = generation.problem.roles[row - kinds] if row >= kinds else None
            if role is not None and role.upto_rps - role.rate_rps > FINE * role.upto_rps:
                cuts[role.workload_class] |= set(np.linspace(role.rate_rps, role.upto_rps, PIECES + 1)[1:-1].tolist())
    return {one: frozenset(rates) for one, rates in cuts.items()}


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

"""Settings: conditions on one slice under which replicas are added one by one, by whoever fills slices greedily.

A way of sharing says what a further replica can carry beside those that are there already: by what is left of the
slice, where what replicas take adds up; by operating points under which all hold, where they slow each other; or by a
list of patterns, where only its oracle can tell.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import Pattern, Running
from provision.formulations.pricing.register import oracles_of, way_of
from provision.formulations.search.problem import Problem, Shareable
from provision.models.base.tolerances import DUST

DRAWS, NEAR = 12, 0.7
"""Prices at which patterns are sought where only an oracle can tell what holds: so often, random within this of 1."""
LEAST_RPS = 1e-9
"""The rate, in requests/s, for which a workload without requests has replicas."""
MOST_LISTED = 300
"""Patterns that are kept, those for the highest rates."""
UNITS = 1000
"""Whole-number price of the dearest role."""
UNLIMITED = 10**9
"""A number of replicas or processes that stands for no limit."""


class Way(NamedTuple):
    """A way to run a replica of a group at a setting.

    It carries from ``least_rps`` up to ``most_rps``; each request/s takes at least ``busy`` of the slice. A slice may
    have it ``limit`` times. ``run`` is its operating point; it is None where that depends on the replicas beside it,
    whose ``role`` then says what it is for. Where ``apart`` is false, a replica of several processes is written as
    several ways.
    """

    group: int
    run: Running | None
    role: int
    least_rps: float
    most_rps: float
    busy: float = 0.0
    memory_gib: float = 0.0
    limit: int = UNLIMITED
    apart: bool = True


@dataclass(frozen=True)
class Setting:
    """Ways to run replicas on one slice, and what the slice has for them.

    Attributes
    ----------
    ways
        The ways.
    use, processes, memory_gib
        The utilisation, the processes and the memory that all ways on the slice may take together.
    workloads
        Fewer workloads than these are better off on a slice of their own.
    points
        Tables of operating points by role, under which the kernels of `provision.formulations.pricing.mps` find out
        what holds; None where replicas do not slow each other beyond what ways say.
    patterns
        The sets of roles that the slice can hold, where there is no shorter rule; None where there is one.
    running
        Gives operating points for ways without any, by their roles.
    """

    ways: Sequence[Way]
    use: float = np.inf
    processes: int = UNLIMITED
    memory_gib: float = np.inf
    workloads: int = 1
    points: Any = None
    patterns: Sequence[Pattern] | None = None
    running: Callable[[Pattern], list[Running] | None] | None = None


def settings_of(problem: Problem) -> Iterator[tuple[int, Setting]]:
    """Slice types that replicas may share, each with a setting; a slice type may have several."""
    for shared in problem.shareable:
        make = way_of(shared.data.kind).settings
        for one in _listed(problem, shared) if make is None else make(problem, shared):
            yield shared.slice_type, one


def role_ways(problem: Problem, shares: Mapping[int, float]) -> list[Way]:
    """A way for every role with a share of the slice that it takes at least, and every group that may have it."""
    found = []
    for at, share in shares.items():
        role = problem.roles[at]
        for group in problem.classes[role.workload_class]:
            whole = role.rate_rps >= group.rate_rps if group.most == 1 else role.rate_rps > 0 or group.rate_rps == 0
            if whole and role.rate_rps <= group.rate_rps * (1 + DUST):
                busy = share / max(role.rate_rps, LEAST_RPS)
                found.append(Way(problem.position[group], None, at, 0.0, role.rate_rps, busy))
    return found


def _listed(problem: Problem, shared: Shareable) -> Iterator[Setting]:
    """Settings of patterns that oracles find at the rates of roles, and at prices near them."""
    draw = np.random.default_rng(0)
    rates = np.array([role.rate_rps for role in problem.roles])
    for oracle in oracles_of(problem).get(shared.slice_type, ()):
        found = dict.fromkeys(oracle.seeds())
        able = sorted({role for pattern in found for role in pattern})
        worth = np.zeros(len(rates))
        worth[able] = UNITS * rates[able] / max(rates[able].max(initial=0.0), DUST) + 1
        for _ in range(DRAWS):
            values = (worth * draw.uniform(1 - NEAR, 1 + NEAR, len(worth))).astype(np.int64)
            found |= dict.fromkeys(oracle.price(values, 0, 0).patterns)
        found = dict.fromkeys(sorted(found, key=lambda pattern: -worth[list(pattern)].sum())[:MOST_LISTED])
        sizes = {role: len(pattern) for pattern in sorted(found, key=len) for role in pattern}
        yield Setting(role_ways(problem, {role: 1 / size for role, size in sorted(sizes.items())}),
                      patterns=list(found), running=oracle.running)

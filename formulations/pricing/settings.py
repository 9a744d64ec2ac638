"""Settings: what a greedy method must know to fill one shared slice, replica by replica.

A setting lists the ways in which replicas can run on the slice. It also tells whether one more replica can run beside
those that the slice has already. How it tells depends on the way of sharing:

- If the needs of replicas add up, the setting has the totals that the slice offers.
- If replicas slow each other, it has tables of operating points. The replicas can run together if there are operating
  points at which all of them keep their SLOs.
- If only the pattern oracle can tell, it has a list of the patterns that the oracle found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import Pattern, Running, oracle_of, way_of
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.search.problem import Problem, Shareable
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST
from provision.models.problem.workload import LEAST_RPS

UNITS = 1000
"""The price of the role with the highest rate, before random factors; prices are whole numbers."""
UNLIMITED = 10**9
"""A number of replicas or processes that stands for no limit."""


class Way(NamedTuple):
    """A way to run a replica of a group on a shared slice.

    The replica can carry rates from ``least_rps`` to ``most_rps``; each request/s takes at least the fraction ``busy``
    of the slice. A slice may have the way at most ``limit`` times. If ``apart`` is true, each time is a replica of its
    own; otherwise all times together are one replica with as many processes. ``run`` is the operating point. If it
    depends on the neighbours, ``run`` is None, and ``role`` is the index of the replica's role.
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
    """Ways to run replicas on one slice, and the limits of the slice.

    Attributes
    ----------
    ways
        The ways to run a replica here.
    use, processes, memory_gib
        The utilisation, the processes and the memory that all ways on the slice may take together.
    workloads
        The fewest workloads that share the slice; fewer are better planned on isolated slices.
    points
        The operating points of each role, if replicas slow each other: the kernels of
        `provision.formulations.pricing.mps` then compute which replicas can run together. None if they do not.
    patterns
        All sets of roles that the slice can hold, if the limits above do not tell them; else None.
    running
        A function from the roles of ways without operating points to their operating points.
    """

    ways: Sequence[Way]
    use: float = np.inf
    processes: int = UNLIMITED
    memory_gib: float = np.inf
    workloads: int = 1
    points: Any = None
    patterns: Sequence[Pattern] | None = None
    running: Callable[[Pattern], list[Running] | None] | None = None


def settings_of(problem: Problem, until: Deadline) -> Iterator[tuple[int, Setting]]:
    """Yield slice types that replicas may share, each with a setting; a slice type may have several settings. Raises
    TimeIsUpError at the deadline.
    """
    for shared in problem.shareable:
        make = way_of(shared.data.kind).settings
        for one in _listed(problem, shared) if make is None else make(problem, shared, until):
            yield shared.slice_type, one


def role_ways(problem: Problem, shares: Mapping[int, float]) -> list[Way]:
    """Ways for roles: one for every role in ``shares`` and every group that may have the role.

    ``shares`` maps a role to the least fraction of the slice that it takes.
    """
    found = []
    rates_rps, single = np.array([(group.rate_rps, group.most == 1) for group in problem.groups]).T
    of_class = {one: np.array([problem.position[group] for group in groups]) for one, groups in problem.classes.items()}
    for at, share in shares.items():
        role = problem.roles[at]
        own = of_class[role.workload_class]
        # A group with one replica has it at its whole rate; the others have replicas of any rate up to theirs.
        served = (rates_rps[own] >= role.rate_rps / (1 + DUST)) & np.where(
            single[own], rates_rps[own] <= role.rate_rps, (role.rate_rps > 0) | (rates_rps[own] == 0))
        busy = share / max(role.rate_rps, LEAST_RPS)
        found += [Way(position, None, at, 0.0, role.rate_rps, busy) for position in np.sort(own[served]).tolist()]
    return found


def _listed(problem: Problem, shared: Shareable) -> Iterator[Setting]:
    """Yield the setting with the patterns that the oracle finds, if there is one. The prices at which it searches are
    random, around the rates of the roles.
    """
    draw, oracle = np.random.default_rng(0), oracle_of(problem, shared)
    if oracle is None:
        return
    rates, found = np.array([role.rate_rps for role in problem.roles]), dict.fromkeys(oracle.seeds())
    able = sorted({role for pattern in found for role in pattern})
    worth = np.zeros(len(rates))
    worth[able] = UNITS * rates[able] / max(rates[able].max(initial=0.0), DUST) + 1
    for _ in range(SCHEDULE.draws):
        values = (worth * draw.uniform(1 - SCHEDULE.noise, 1 + SCHEDULE.noise, len(worth))).astype(np.int64)
        found |= dict.fromkeys(oracle.price(values, 0).patterns)
    found = dict.fromkeys(sorted(found, key=lambda pattern: -worth[list(pattern)].sum())[:SCHEDULE.listed])
    sizes = {role: len(pattern) for pattern in sorted(found, key=len) for role in pattern}
    yield Setting(role_ways(problem, {role: 1 / size for role, size in sorted(sizes.items())}),
                  patterns=list(found), running=oracle.running)

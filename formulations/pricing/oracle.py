"""The interface between a way of sharing a slice and the searches that plan with it: PatternOracle, and settings.

Each way of sharing belongs to a kind of performance data, and is found by an entry point.

A setting is what a greedy method must know to fill one shared slice, replica by replica. It lists the ways in which
replicas can run on the slice. It also tells whether one more replica can run beside those that the slice has already.
How it tells depends on the way of sharing:

- If the needs of replicas add up, the setting has the totals that the slice offers.
- If replicas slow each other, it has tables of operating points. The replicas can run together if there are operating
  points at which all of them keep their SLOs.
- If only the pattern oracle can tell, it has a list of the patterns that the oracle found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.search.problem import Problem, Role, Shareable
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.base.tolerances import DUST
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance
from provision.models.problem.workload import LEAST_RPS, FleetEntry

Pattern = tuple[int, ...]
"""The replicas on one slice, as indices of their roles in ascending order. A role may occur several times."""


class Running(NamedTuple):
    """How one replica of a pattern runs.

    ``model`` is an index into the models of its role. ``sm_share`` is the part of the slice's SMs that each process
    has. ``turn`` is the number of the part of the slice on which the replica takes turns with others; None if it takes
    no turns.
    """

    model: int
    batch: int
    processes: int
    sm_share: float
    turn: int | None = None


def replica_of(instance: Instance, workload: int, run: Running, rate_rps: float = 0.0) -> Replica:
    """The replica of a workload (by index) that runs in some way, at a rate."""
    one = instance.workloads[workload]
    return Replica(workload=one.name, model=one.named(run.model), batch=run.batch, processes=run.processes,
                   sm_share=run.sm_share, turn=run.turn, rate_rps=rate_rps)


class Priced(NamedTuple):
    """The result of one call of pricing.

    ``patterns`` are valid for plans. No pattern has a value above ``most``; this includes patterns that are valid only
    within the verifier's tolerances, and rates up to ``upto_rps`` of the roles.
    """

    patterns: list[Pattern]
    most: int


class PatternOracle(Protocol):
    """The patterns of one slice type: which are valid, and which have the highest value at given prices of roles."""

    def seeds(self) -> list[Pattern]:
        """The patterns to begin with: one replica, for each role for which that is valid."""
        ...

    def price(self, values: NDArray[np.int64], floor: int) -> Priced:
        """Find patterns whose roles have a total price above a floor.

        Parameters
        ----------
        values
            (roles,) whole-number prices, not negative.
        floor
            Patterns of at most this value are not wanted.
        """
        ...

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas, in the order of its roles; None if the pattern is not valid."""
        ...


@dataclass(frozen=True)
class WayOfSharing:
    """What planning knows about one way of sharing slices: ``oracle``, or both of the others.

    Attributes
    ----------
    oracle
        Makes the PatternOracle of a slice type. It gets the instance, the fleet entry, the slice's profile, the data,
        all roles, and (roles,) the highest number of replicas of each role in one pattern. It returns None if the data
        does not describe how the slice is shared.
    rates
        Makes the ``RateOracle`` (`provision.formulations.pricing.rates`) of a Problem, a slice type, the data and a
        Deadline. It returns None if the patterns of the Problem carry no rates, or are not all listed at the deadline.
        Then, and if ``rates`` itself is None, patterns are priced by the roles of ``oracle``, and workloads are split
        at the rates of roles.
    settings
        Makes the ``Setting``s of a slice type, under which replicas are added one by one; it gets a Problem, a
        Shareable and a Deadline. If it is None, slices are filled with patterns of ``oracle``.
    """

    oracle: Callable[[Instance, FleetEntry, str, Any, Sequence[Role], NDArray[np.int64]], PatternOracle | None
                     ] | None = None
    rates: Callable[..., Any] | None = None
    settings: Callable[..., Any] | None = None


GROUP = "provision.patterns"
"""The group of entry points. Each has the name of a kind of performance data and loads a WayOfSharing, or only its
``oracle``.
"""


@cache
def way_of(kind: str) -> WayOfSharing:
    """The way of sharing that a kind of performance data describes. Its module is imported at the first call.

    Raises
    ------
    InputError
        If no entry point has the name of the kind.
    """
    for found in entry_points(group=GROUP, name=kind):
        way = found.load()
        return way if isinstance(way, WayOfSharing) else WayOfSharing(way)
    raise InputError(f"performance data of kind {kind!r} says that replicas share slices, but no entry point of "
                     f"{GROUP} says what may run together there; declare one and install its package again")


def oracle_of(problem: Problem, shared: Shareable) -> PatternOracle | None:
    """A new oracle of one shareable slice type for one performance file; None if there is none."""
    make = way_of(shared.data.kind).oracle
    if make is None or not problem.roles:
        return None
    slice_type = problem.segments.slice_types[shared.slice_type]
    entry = problem.instance.fleet[slice_type.entry]
    return make(problem.instance, entry, slice_type.profile, shared.data, problem.roles, problem.copies)


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
        A function from the roles of ways without operating points, in the order in which they were added, to their
        operating points in the same order.
    """

    ways: Sequence[Way]
    use: float = np.inf
    processes: int = UNLIMITED
    memory_gib: float = np.inf
    workloads: int = 1
    points: Any = None
    patterns: Sequence[Pattern] | None = None
    running: Callable[[tuple[int, ...]], list[Running] | None] | None = None


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

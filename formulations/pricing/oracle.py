"""PatternOracle: the interface between a way of sharing a slice and the searches that plan with it.

Each way of sharing belongs to a kind of performance data, and is found by an entry point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.formulations.search.problem import Problem, Role, Shareable
from provision.models.base.errors import InputError
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

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
        Makes the ``Setting``s of a slice type (`provision.formulations.pricing.settings`), under which replicas are
        added one by one; it gets a Problem, a Shareable and a Deadline. If it is None, slices are filled with patterns
        of ``oracle``.
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

"""The interface between a way of sharing a slice and the programs that plan with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.formulations.search.roles import Role
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

Pattern = tuple[int, ...]
"""Everything in one slice: the roles of its replicas as indices, in ascending order, a role as often as it occurs."""


class Running(NamedTuple):
    """How one replica of a pattern runs.

    ``model`` counts in the models of its role, ``sm_share`` is the part of the slice's SMs of each process, ``turn``
    the part of the slice on which replicas take turns (None: the replica has a share of its own).
    """

    model: int
    batch: int
    processes: int
    sm_share: float
    turn: int | None = None


class Priced(NamedTuple):
    """What a pricing round found.

    ``patterns`` are valid for plans. No pattern, even one that is valid only within the verifier's tolerances, or at
    any rates up to ``upto_rps`` of its roles, is worth more than ``most``. The search was ``exhaustive`` when ``most``
    is reached by a pattern that was found, no pattern exceeds the floor, or a harder search would find no more.
    """

    patterns: list[Pattern]
    most: int
    exhaustive: bool


class PatternOracle(Protocol):
    """The patterns of one slice type: what is valid together, and what is worth most at given prices of roles."""

    def seeds(self) -> list[Pattern]:
        """Patterns to begin with: each role alone, where it can stand."""
        ...

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns worth more than a floor.

        Parameters
        ----------
        values
            (roles,) whole-number prices, not negative.
        floor
            Patterns that are worth no more are of no interest.
        effort
            0 for the quickest search; every further step looks harder.
        """
        ...

    def running(self, pattern: Pattern) -> list[Running] | None:
        """Operating points of a pattern's replicas, in the order of its roles; None when it is not valid."""
        ...


class OracleFactory(Protocol):
    """Makes the oracle of a slice type; None where the data says nothing about sharing it.

    ``copies`` (roles,) is how many replicas may take each role.
    """

    def __call__(self, instance: Instance, entry: FleetEntry, profile: str, data: Any,
                 roles: Sequence[Role], copies: NDArray[np.int64]) -> PatternOracle | None:
        """The oracle of a slice type; None for slice types that have none."""
        ...


@dataclass(frozen=True)
class WayOfSharing:
    """What planning knows of one way of sharing slices. Only the oracle is needed; what is None is not offered.

    Attributes
    ----------
    oracle
        Makes the oracle of a slice type.
    rates
        Makes its ``RateOracle`` (`provision.formulations.pricing.rates`) for a Problem, a slice type and the data, None
        where patterns of that Problem carry no rates; then most throughput is priced by the roles of the oracle, and
        workloads are split at steps of rates.
    """

    oracle: OracleFactory
    rates: Callable[..., Any] | None = None

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
"""The replicas in one slice: their roles as indices, in ascending order, each as often as it occurs."""


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
    """The result of one call of pricing.

    ``patterns`` are valid for plans. No pattern has a value above ``most``, not even one that is valid only within the
    verifier's tolerances, with rates up to ``upto_rps`` of its roles. The search was ``exhaustive`` if a pattern with
    value ``most`` was found, no pattern exceeds the floor, or a longer search would find no more.
    """

    patterns: list[Pattern]
    most: int
    exhaustive: bool


class PatternOracle(Protocol):
    """The patterns of one slice type: which are valid, and which have the highest value at given prices of roles."""

    def seeds(self) -> list[Pattern]:
        """The patterns to begin with: each role alone, where it is valid."""
        ...

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Find patterns whose roles have a total price above a floor.

        Parameters
        ----------
        values
            (roles,) whole-number prices, not negative.
        floor
            Only patterns of a higher value are wanted.
        effort
            0 for the quickest search; higher numbers search longer.
        """
        ...

    def running(self, pattern: Pattern) -> list[Running] | None:
        """Operating points of a pattern's replicas, in the order of its roles; None if the pattern is not valid."""
        ...


class OracleFactory(Protocol):
    """Makes the oracle of a slice type; None if the data does not describe sharing it.

    ``copies`` (roles,) is the most replicas with each role in a pattern.
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

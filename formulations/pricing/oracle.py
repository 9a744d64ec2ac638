"""The interface between a way of sharing a slice and the programs that plan with it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.formulations.search.roles import Role
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

Content = tuple[int, ...]
"""Everything in one slice: the roles of its replicas as indices, in ascending order, a role as often as it occurs."""


class Running(NamedTuple):
    """How one replica of a content runs.

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

    ``contents`` are valid for plans. No content, even one that is valid only within the verifier's tolerances, or at
    any rates up to ``upto_rps`` of its roles, is worth more than ``most``. The search was ``exhaustive`` when ``most``
    is reached by a content that was found, no content exceeds the floor, or a harder search would find no more.
    """

    contents: list[Content]
    most: int
    exhaustive: bool


class ContentOracle(Protocol):
    """The contents of one slice kind: what is valid together, and what is worth most at given prices of roles."""

    def seeds(self) -> list[Content]:
        """Contents to begin with: each role alone, where it can stand."""
        ...

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Contents worth more than a floor.

        Parameters
        ----------
        values
            (roles,) whole-number prices, not negative.
        floor
            Contents that are worth no more are of no interest.
        effort
            0 for the quickest search; every further step looks harder.
        """
        ...

    def running(self, content: Content) -> list[Running] | None:
        """Operating points of a content's replicas, in the order of its roles; None when it is not valid."""
        ...


class OracleFactory(Protocol):
    """Makes the oracle of a slice kind; None where the data says nothing about sharing it.

    ``copies`` (roles,) is how many replicas may take each role.
    """

    def __call__(self, instance: Instance, entry: FleetEntry, profile: str, data: PerformanceFile,
                 roles: Sequence[Role], copies: NDArray[np.int64]) -> ContentOracle | None:
        """The oracle of a slice kind; None for kinds that have none."""
        ...

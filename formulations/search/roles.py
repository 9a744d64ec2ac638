"""Roles: what a replica is for, and the rates at which splits of a workload are planned and bounded."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.base.tolerances import DUST

FRACTIONS = tuple(sorted({j / m for m in range(1, 5) for j in range(1, m + 1)}))
"""Parts of a rate that a replica may carry: halves, thirds and quarters."""
FEW_RATES = 16
"""Most distinct rates of one class that are each divided into FRACTIONS; more share one grid of rates."""
STEP, WIDE = 1.08, 1.25
"""Factor from one rate to the next on the shared grid, and on the grid below the smallest part of few rates."""


class Role(NamedTuple):
    """A replica's purpose: a workload of these models and this SLO, and the rate that it carries.

    A replica that has the role can carry ``rate_rps``, in requests/s. Whatever replica carries a rate from ``rate_rps``
    up to ``upto_rps`` has the role as well: a plan credits the role with the former, a bound with the latter.
    """

    models: tuple[str, ...]
    slo_ms: float
    rate_rps: float
    upto_rps: float

    @property
    def workload_class(self) -> tuple[tuple[str, ...], float]:
        """What workloads have in common that can take each other's places at equal rates."""
        return self.models, self.slo_ms


def serving(harder: Sequence[Role], easier: Sequence[Role]) -> NDArray[np.bool_]:
    """(harder, easier) flags: whether a replica of a harder role can serve an easier one in its place.

    That is so when both have the same models, and the harder role's SLO is no longer and its rate no lower.
    """
    numbers = {models: number for number, models in enumerate({role.models for role in (*harder, *easier)})}
    (models, slo_ms, rate_rps), (other, slo, rate) = (
        np.array([(numbers[role.models], role.slo_ms, role.rate_rps) for role in roles]).reshape(-1, 3).T
        for roles in (harder, easier)
    )
    return (models[:, None] == other) & (slo_ms[:, None] <= slo) & (rate_rps[:, None] >= rate)


def dominance(roles: Sequence[Role]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The dominance order of distinct roles, as edges of its Hasse diagram: (edges,) harder and easier ends."""
    serves = serving(roles, roles)
    np.fill_diagonal(serves, False)
    steps = serves.astype(np.float32)
    harder, easier = np.nonzero(serves & ~(steps @ steps > 0))
    return harder, easier


def hardness(role: Role) -> tuple[tuple[str, ...], float, float]:
    """Sort key: a role can never serve a role that sorts before it."""
    return role.models, role.slo_ms, -role.rate_rps


def split_rates(rates_rps: Iterable[float], least_rps: float, most_rps: float) -> list[float]:
    """Rates, in requests/s and ascending, at which replicas are considered when a workload may be split.

    Every planned rate is among them, so that a workload with one replica loses nothing. The rate that the smallest
    replica carries is among them too, so that small replicas are not credited with more than that.

    Parameters
    ----------
    rates_rps
        The planned rates of the workloads of one class, in requests/s.
    least_rps, most_rps
        What one replica of the class carries on the smallest part of a slice, and at most anywhere, in requests/s.
    """
    whole = sorted({rate for rate in rates_rps if rate > 0})
    if not whole:
        return []
    parts = {min(rate, most_rps) for rate in whole} | {rate / pieces(rate, most_rps) for rate in whole}
    step = STEP
    if len(whole) <= FEW_RATES:
        parts |= {part * fraction for part in list(parts) for fraction in FRACTIONS}
        step = WIDE
    low, top = min(least_rps, whole[0]), min(parts) if len(whole) <= FEW_RATES else max(parts)
    parts |= {low * step**at for at in range(math.floor(math.log(top / low) / math.log(step)) + 1)}
    return sorted(part for part in parts if part <= most_rps)


def pieces(rate_rps: float, most_rps: float) -> int:
    """The least number of replicas that carry a rate when each carries at most ``most_rps``."""
    return max(1, math.ceil(rate_rps / most_rps * (1 - DUST)))

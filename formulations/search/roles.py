"""Roles: what replicas on shared slices are for, and the rates into which workloads may be split."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from provision.models.base.tolerances import DUST

STEP = 1.08
"""The ratio between successive rates."""


class Role(NamedTuple):
    """The task of a replica on a shared slice: to serve a workload with these models and this SLO, at a rate.

    A replica may have the role if it can carry ``rate_rps`` requests/s. It has the role in bounds if its rate is at
    least ``rate_rps`` and below ``upto_rps``. A plan credits the role with ``rate_rps``, a bound with ``upto_rps``.
    """

    models: tuple[str, ...]
    slo_ms: float
    rate_rps: float
    upto_rps: float

    @property
    def workload_class(self) -> tuple[tuple[str, ...], float]:
        """Models and SLO (ms). Workloads of one class can take each other's places at equal rates."""
        return self.models, self.slo_ms


def hardest_first(role: Role) -> tuple[tuple[str, ...], float, float]:
    """Sort key for roles: harder ones come first, so that a role can never serve a role before it."""
    return role.models, role.slo_ms, -role.rate_rps


def split_rates(rates_rps: Iterable[float], least_rps: float, most_rps: float) -> list[float]:
    """The rates, in requests/s and ascending, for which roles are made if workloads may be split.

    Every planned rate is among them, so that a workload can be served whole by one replica. The rate that the smallest
    replica carries is among them too, so that small replicas are not credited with more than that.

    Parameters
    ----------
    rates_rps
        The planned rates of the workloads of one class, in requests/s.
    least_rps, most_rps
        What one replica of the class carries on the smallest part of a slice, and the most it carries on any slice, in
        requests/s.
    """
    whole = sorted({rate for rate in rates_rps if rate > 0})
    if not whole:
        return []
    parts = {min(rate, most_rps) for rate in whole} | {rate / least_replicas(rate, most_rps) for rate in whole}
    low, top = min(least_rps, whole[0]), max(parts)
    parts |= {low * STEP**at for at in range(math.floor(math.log(top / low) / math.log(STEP)) + 1)}
    return sorted(part for part in parts if part <= most_rps)


def least_replicas(rate_rps: float, most_rps: float) -> int:
    """The least number of replicas that carry a rate if each carries at most ``most_rps``."""
    return max(1, math.ceil(rate_rps / most_rps * (1 - DUST)))

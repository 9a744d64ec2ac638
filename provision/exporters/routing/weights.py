"""Whole numbers by which load balancers deal requests, in proportion to the rates of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from provision.models.base.errors import InputError

EXACT = 100
"""The least weight: largest remainders move a weight by less than 1, so by less than 1 % of its rate."""
MOST = 2**31 - 1
"""The largest weight that Istio and nginx take."""


def weights(workload: str, rates_rps: Sequence[float]) -> list[int]:
    """Weights for the places where a workload is served, by largest remainder.

    Parameters
    ----------
    workload
        Its name, for messages.
    rates_rps
        The rate of every place, in requests/s.

    Returns
    -------
    list of int
        Each within 1 % of its rate, as a part of their sum; 0 for a rate of 0, all alike where there is no rate.

    Raises
    ------
    InputError
        When the rates differ so much that weights of 32 bits cannot tell them.
    """
    total = math.fsum(rates_rps)
    if total <= 0:
        return [EXACT] * len(rates_rps)
    least = min(rate for rate in rates_rps if rate > 0)
    whole = math.ceil(EXACT * total / least)
    if whole > MOST:
        raise InputError(
            f"export: the replicas of {workload} carry from {least:.3g} to {max(rates_rps):.3g} requests/s, which no "
            "weights of 32 bits tell; plan with even_replicas"
        )
    exact = [whole * rate / total for rate in rates_rps]
    dealt = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(exact)), key=lambda at: dealt[at] - exact[at])
    for at in by_remainder[: whole - sum(dealt)]:
        dealt[at] += 1
    return dealt

"""Integer weights by which load balancers distribute requests in proportion to the rates of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from provision.models.base.errors import InputError

EXACT = 100
"""The least weight of a server.

The method of largest remainders changes a weight by less than 1. So it changes a rate by less than 1 %.
"""
MOST = 2**31 - 1
"""The largest weight that Istio and nginx accept."""


def weights(workload: str, rates_rps: Sequence[float]) -> list[int]:
    """Weights for the servers of a workload, by the method of largest remainders.

    Parameters
    ----------
    workload
        The name of the workload, for messages.
    rates_rps
        The rate of every server, in requests/s.

    Returns
    -------
    list of int
        Each weight's fraction of all weights is within 1 % of the rate's fraction of all rates. A rate of 0 has the
        weight 0. If all rates are 0, the weights are equal.

    Raises
    ------
    InputError
        If the rates differ too much for weights of 32 bits.
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

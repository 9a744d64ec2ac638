"""What a policy expects of the next window: the demand itself, the last window, or a moving average (gpu-lets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.demand import Demand
    from provision.models.base.arrays import Floats

EWMA = 0.5
"""Weight of the last window in the moving average; gpu-lets does not say its own."""
FORECASTS = ("known", "last", "ewma")


def expected(demand: Demand, kind: str) -> Floats:
    """(windows, workloads) rates expected for each window, in requests/s; the first window is always known.

    Raises
    ------
    InputError
        For a kind that is none of FORECASTS.
    """
    if kind not in FORECASTS:
        raise InputError(f"forecast {kind!r}: use one of {', '.join(FORECASTS)}")
    rates = demand.rates_rps
    if kind == "known":
        return rates
    seen = rates if kind == "last" else _averaged(rates)
    return np.vstack([rates[:1], seen[:-1]])


def _averaged(rates: Floats) -> Floats:
    """The exponentially weighted moving average up to and with each window."""
    averaged = [rates[0]]
    for row in rates[1:]:
        averaged.append(EWMA * row + (1 - EWMA) * averaged[-1])
    return np.array(averaged)

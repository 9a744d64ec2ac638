"""Forecasts of the next window's demand: the demand itself, the last window, or a moving average (gpu-lets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.demand import Demand
    from provision.models.base.arrays import Floats

EWMA, EWMA_STEP_S = 2 / 41, 0.5
"""Weight of the newest step in gpu-lets' moving average and the length of a step (as its public program does)."""
FORECASTS = ("known", "last", "ewma")


def expected(demand: Demand, kind: str) -> Floats:
    """The rates (requests/s) expected for each window, (windows, workloads); those of the first are always known.

    Raises
    ------
    InputError
        For a kind that is not one of FORECASTS.
    """
    if kind not in FORECASTS:
        raise InputError(f"forecast {kind!r}: use one of {', '.join(FORECASTS)}")
    rates = demand.rates_rps
    if kind == "known":
        return rates
    seen = rates if kind == "last" else _averaged(rates, window_weight(demand.window_s))
    return np.vstack([rates[:1], seen[:-1]])


def window_weight(window_s: float) -> float:
    """Weight of a whole last window in gpu-lets' moving average; 0.865 for its 20 s."""
    return 1 - (1 - EWMA) ** (window_s / EWMA_STEP_S)


def _averaged(rates: Floats, weight: float) -> Floats:
    """The exponentially weighted moving average up to and with each window."""
    averaged = [rates[0]]
    for row in rates[1:]:
        averaged.append(weight * row + (1 - weight) * averaged[-1])
    return np.array(averaged)

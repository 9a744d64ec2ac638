"""Forecasts the demand of the next window: the demand itself, the demand of the last window, or a moving average
(gpu-lets).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.demand import Demand
    from provision.models.base.arrays import Floats

EWMA, EWMA_STEP_S = 2 / 41, 0.5
"""The weight of the newest step in gpu-lets' moving average, and the length of a step in seconds, both as in its public
program.
"""
FORECASTS = ("known", "last", "ewma")


def expected(demand: Demand, kind: str) -> Floats:
    """(windows, workloads), the rates in requests/s that are expected for each window; the rates of the first window
    are always known.

    Raises
    ------
    InputError
        If the kind is not one of FORECASTS.
    """
    if kind not in FORECASTS:
        raise InputError(f"forecast {kind!r}: use one of {', '.join(FORECASTS)}")
    rates = demand.rates_rps
    if kind == "known":
        return rates
    seen = rates if kind == "last" else _averaged(rates, window_weight(demand.window_s))
    return np.vstack([rates[:1], seen[:-1]])


def window_weight(window_s: float) -> float:
    """The weight of the whole last window in gpu-lets' moving average; 0.865 for gpu-lets' windows of 20 s."""
    return 1 - (1 - EWMA) ** (window_s / EWMA_STEP_S)


def _averaged(rates: Floats, weight: float) -> Floats:
    """(windows, workloads), the exponentially weighted moving average over all windows up to and including each window.
    """
    averaged = [rates[0]]
    for row in rates[1:]:
        averaged.append(weight * row + (1 - weight) * averaged[-1])
    return np.array(averaged)

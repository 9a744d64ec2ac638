"""Forecasts the demand of the next window: the demand itself, the demand of the last window, a moving average
(gpu-lets), or what statsforecast tells from a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from provision.instances.files.demand import Demand
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError, optional

EWMA, EWMA_STEP_S = 2 / 41, 0.5
"""The weight of the newest step in gpu-lets' moving average, and the length of a step in seconds, both as in its public
program.
"""
FORECASTS = ("known", "last", "ewma")


def expected(demand: Demand, kind: str) -> Floats:
    """(windows, workloads), the rates in requests/s that are expected for each window; the rates of the first window
    are always known. Raises InputError if the kind is not one of FORECASTS.
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


LEAST_HISTORY, MOST_HISTORY, LIKELY = 24, 288, 50
"""The fewest and the most intervals that a forecast rests on; the percentage of the interval about a forecast above
which a rise counts as likely: so that three in four are.
"""


def ahead(history: Sequence[Sequence[float]], limit_s: float = inf) -> list[float] | None:
    """The rates that are expected for the next interval; None while there is too little history.

    statsforecast fits an exponential smoothing to each workload. Its forecast counts where a rise is likely; elsewhere
    the last rate does: rates of single clients are noise around it, and the higher of both would be too high.

    Parameters
    ----------
    history
        The rates of past intervals, the oldest first.
    limit_s
        The seconds for all fits; workloads whose turn does not come keep their last rate.

    Raises
    ------
    InputError
        If statsforecast is not installed, or fails on this history.
    """
    deadline = Deadline(limit_s)
    if len(history) < LEAST_HISTORY:
        return None
    with optional():
        from statsforecast import models
    expected = list(map(float, history[-1]))
    try:
        for number, column in enumerate(np.array(history[-MOST_HISTORY:], dtype=float).T):
            if np.ptp(column) and not deadline.over:
                told = models.AutoETS(model="ZZN").forecast(y=column, h=1, level=[LIKELY])
                if told[f"lo-{LIKELY}"][0] > column[-1]:
                    expected[number] = float(told["mean"][0])
    except Exception as error:  # statsforecast raises Exception itself where no model fits
        raise InputError(f"statsforecast: {type(error).__name__}: {error}; go without it: --no-forecast") from error
    return expected

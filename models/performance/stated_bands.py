"""Answers for every kind of performance data how far its predictions may be off: the band of the ratio of measured to
predicted times.

What counts, in this order: bands of a language model's requests; errors by slice type and batch size; the error that a
fit states of a model or of all of its data, taken as lognormal with median 1, and wider the fewer points it was seen
on. Times that were measured once have none.
"""

import math
from typing import NamedTuple

from provision.models.performance.bands import CONFIDENCE, NORMAL, Band, Spot, TokenBands
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.tokens.data import TokenModels

LEVEL = 0.975
ABSOLUTE = NORMAL.inv_cdf(LEVEL)
"""The 95th percentile of the absolute value of a normal error, in standard deviations; of an error seen on few points,
Student's t distribution has a larger one.
"""


class ServiceBands(NamedTuple):
    """The bands of a model's service times, and of the times of its first tokens (the same but for language models)."""

    service: Band
    first_token: Band


def band_of(data: PerformanceFile, model: str, spot: Spot, confidence: float = CONFIDENCE) -> ServiceBands | None:
    """The bands around the predictions for a model at a spot; None if the data state no errors for it there.

    A band is the range of the ratio of measured to predicted time.

    Parameters
    ----------
    data, model
        The performance data and one of its models.
    spot
        The slice type, batch size and SM share of the prediction.
    confidence
        The probability with which the ratio is within its band.
    """
    tokens = _token_bands(data, model).get(spot.profile)
    if tokens is not None:
        return ServiceBands(tokens.tpot.at(confidence), tokens.ttft.at(confidence))
    found = data.bands.band(model, spot, confidence) if data.bands else None
    if found is None:
        stated = _stated_errors(data, model, spot.beside)
        found = Band.of_deviation(stated[0], confidence) if stated else None
    return None if found is None else ServiceBands(found, found)


def overall_bands(data: PerformanceFile, model: str) -> list[ServiceBands]:
    """The bands with probability CONFIDENCE that the data state of a model over all of its slice types and batch sizes:
    alone, beside others, or of a language model on each slice type.
    """
    tokens = _token_bands(data, model).values()
    if tokens:
        return [ServiceBands(one.tpot, one.ttft) for one in tokens]
    seen = data.bands.overall(model) if data.bands else []
    bands = [one.band(CONFIDENCE) for one in seen] or [Band.of_deviation(one) for one in _stated_errors(data, model)]
    return [ServiceBands(one, one) for one in bands]


def _token_bands(data: PerformanceFile, model: str) -> dict[str, TokenBands]:
    """The bands of a language model's requests by profile; empty if some slice has none."""
    slices = data.models[model].slices if isinstance(data, TokenModels) else {}
    stated = {name: one.bands for name, one in slices.items() if one.bands is not None}
    return stated if len(stated) == len(slices) else {}


def _stated_errors(data: PerformanceFile, model: str, beside: bool = True) -> list[float]:
    """The standard deviations of log times that follow from the errors stated for a model, the most specific first."""
    from scipy.special import stdtrit  # it loads slowly, and most data state bands

    known = data.models[model]
    places: list[tuple[object, str]] = [(known, "pair_error")] if beside else []
    places += [(known, "error"), (known, "solo_error"), (data, "error")]
    stated = [found for holder, name in places if (found := getattr(holder, name, None)) is not None]
    return [math.log1p(one.p95) / ABSOLUTE * float(stdtrit(one.points, LEVEL)) / ABSOLUTE for one in stated]

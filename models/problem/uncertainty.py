"""Derives, from uncertain predictions and rates, the factors that a plan must bear so that it keeps its SLOs with a
given confidence. There is one uncertain factor on all service times and one on all rates; each is assumed to be
lognormal, and the two are independent. If k factors are uncertain, a plan that keeps its SLOs with every factor at its
quantile ``confidence^(1/k)`` keeps them at least with the probability ``confidence``, because shorter times and lower
rates break no SLO.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from provision.models.base.fields import Number, Positive, Record
from provision.models.performance.bands import CONFIDENCE, NORMAL, Band
from provision.models.performance.catalogue import PerformanceFile, overall_bands

HALF_BAND = NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
"""Half of the width of a band of a normal distribution, in standard deviations."""


def _percent(given: object) -> object:
    """Convert a fraction that is written in percent, such as ``5%``, to a number; return other values unchanged."""
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            return float(given.strip()[:-1]) / 100
        except ValueError:
            return given
    return given


Part = Annotated[Number, BeforeValidator(_percent, json_schema_input_type=float | str), Field(ge=0, le=1)]
"""A standard deviation as a part of the mean: 0.05 or ``5%``."""


class Uncertainty(Record):
    """The uncertainty of predictions and rates. ``service``: the standard deviation of a factor on all service times;
    or ``fitted``, for the errors that the performance data states. ``rates``: the standard deviation of a factor on all
    rates. ``cv``: the coefficient of variation of the times between requests for which to plan, instead of the stated
    arrivals.
    """

    service: Literal["fitted"] | Part = "fitted"
    rates: Part = 0.0
    cv: Annotated[Positive, Field(le=10)] | None = None


class Spread(NamedTuple):
    """The mean and the standard deviation of the logarithm of a lognormal factor."""

    mean: float = 0.0
    deviation: float = 0.0

    def at(self, level: float) -> float:
        """The quantile of the factor at the probability ``level``, or 1 if that is larger."""
        return math.exp(max(self.mean + NORMAL.inv_cdf(level) * self.deviation, 0.0))


class Stretch(NamedTuple):
    """The factors that a plan must bear: on all service times, on the times of first tokens (at least as large), and on
    all rates.
    """

    service: float = 1.0
    first_token: float = 1.0
    rate: float = 1.0


def stretch_of(confidence: float, uncertainty: Uncertainty, files: Iterable[PerformanceFile], models: set[str]
               ) -> Stretch:
    """The factors that a plan must bear to keep its SLOs with the given confidence. Raises ValueError if the
    performance data should state its errors and does not.
    """
    service, first, rate = spreads_of(uncertainty, files, models)
    uncertain = sum(one.deviation > 0 for one in (service, rate))
    level = confidence ** (1 / max(uncertain, 1))
    return Stretch(service.at(level), max(service.at(level), first.at(level)), rate.at(level))


def spreads_of(uncertainty: Uncertainty, files: Iterable[PerformanceFile], models: set[str]
               ) -> tuple[Spread, Spread, Spread]:
    """The Spreads of the factors on service times, on times to the first token, and on rates. If several performance
    data state a Spread, the widest counts. Raises ValueError if the performance data should state its errors and does
    not.
    """
    rate = Spread(0.0, math.log1p(uncertainty.rates))
    if not isinstance(uncertainty.service, str):
        service = Spread(0.0, math.log1p(uncertainty.service))
        return service, service, rate
    stated = [one for data in files for name in data.models if name in models for one in _stated(data, name)]
    services, firsts = zip(*stated, strict=True) if stated else ((Spread(),), (Spread(),))
    return _widest(services), _widest(firsts), rate


def _widest(spreads: Iterable[Spread]) -> Spread:
    """The spread whose band has the highest end."""
    return max(spreads, key=lambda one: one.mean + HALF_BAND * one.deviation)


def _stated(data: PerformanceFile, model: str) -> list[tuple[Spread, Spread]]:
    """The pairs (Spread of service times, Spread of first tokens) that performance data states for a model. Measured
    data that states none is exact. Raises ValueError if other data states none.
    """
    stated = overall_bands(data, model)
    if not stated and not data.measured:
        raise ValueError(f"policy.uncertainty.service: fitted, but the performance data {data.name} state no error of "
                         f"{model}; write a percentage, such as 5%")
    return [(_of(one.service), _of(one.first_token)) for one in stated] or [(Spread(), Spread())]


def _of(band: Band) -> Spread:
    low, high = math.log(band.low), math.log(band.high)
    return Spread((low + high) / 2, (high - low) / 2 / HALF_BAND)

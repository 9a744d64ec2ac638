"""Uncertain predictions, rates and burstiness, and what a plan must bear so that it holds with some confidence.

Errors of predictions are shared: a factor on all service times, one on all rates. Each is taken for lognormal. A plan
that keeps its SLOs with every factor at its quantile ``confidence^(1/k)``, k of them independent, keeps them with the
probability ``confidence`` at least, because shorter times and lower rates break no SLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from provision.models.base.fields import Number, Positive, Record
from provision.models.performance.tokens.data import TokenModels

if TYPE_CHECKING:
    from provision.models.performance.bands import Band
    from provision.models.performance.catalogue import PerformanceFile

NINETY = NormalDist().inv_cdf(0.95)
"""Half of the width of a 90 % band, in standard deviations."""
ABSOLUTE = NormalDist().inv_cdf(0.975)
"""The 95th percentile of absolute errors, in standard deviations."""


def _percent(given: object) -> object:
    """A part, which may be written in percent."""
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            return float(given.strip()[:-1]) / 100
        except ValueError:
            return given
    return given


Part = Annotated[Number, BeforeValidator(_percent, json_schema_input_type=float | str), Field(ge=0, le=1)]
"""A standard deviation as a part of the mean: 0.05 or ``5%``."""


class Uncertainty(Record):
    """How far what a plan was made for may be from what comes.

    ``service``: the standard deviation of a factor on all service times, or ``fitted``, what the performance data state
    of their errors. ``rates``: the same of a factor on all rates. ``cv``: the coefficient of variation of the times
    between requests to plan for, in place of the arrivals.
    """

    service: Literal["fitted"] | Part = "fitted"
    rates: Part = 0.0
    cv: Annotated[Positive, Field(le=10)] | None = None


class Spread(NamedTuple):
    """The logarithm of a factor: its mean and its standard deviation."""

    mean: float = 0.0
    deviation: float = 0.0

    def at(self, level: float) -> float:
        """The factor at a quantile, no less than 1."""
        return math.exp(max(self.mean + NormalDist().inv_cdf(level) * self.deviation, 0.0))


class Stretch(NamedTuple):
    """Factors that a plan must bear: on all service times, on first tokens (where larger), and on all rates."""

    service: float = 1.0
    first_token: float = 1.0
    rate: float = 1.0


def stretch_of(confidence: float, uncertainty: Uncertainty, files: Iterable[PerformanceFile], models: set[str]
               ) -> Stretch:
    """What a plan must bear to hold with some confidence.

    Raises
    ------
    ValueError
        Where the performance data should tell their errors and do not.
    """
    service, first, rate = spreads_of(uncertainty, files, models)
    uncertain = sum(one.deviation > 0 for one in (service, rate))
    level = confidence ** (1 / max(uncertain, 1))
    return Stretch(service.at(level), max(service.at(level), first.at(level)), rate.at(level))


def spreads_of(uncertainty: Uncertainty, files: Iterable[PerformanceFile], models: set[str]
               ) -> tuple[Spread, Spread, Spread]:
    """The factors on service times, first tokens and rates; of several performance data the widest.

    Raises
    ------
    ValueError
        Where the performance data should tell their errors and do not.
    """
    rate = Spread(0.0, math.log1p(uncertainty.rates))
    if not isinstance(uncertainty.service, str):
        service = Spread(0.0, math.log1p(uncertainty.service))
        return service, service, rate
    stated = [one for data in files for name in data.models if name in models for one in _stated(data, name)]
    services, firsts = zip(*stated, strict=True) if stated else ((Spread(),), (Spread(),))
    return _widest(services), _widest(firsts), rate


def _widest(spreads: Iterable[Spread]) -> Spread:
    """The spread with the highest end of its 90 % band."""
    return max(spreads, key=lambda one: one.mean + NINETY * one.deviation)


def _stated(data: PerformanceFile, model: str) -> list[tuple[Spread, Spread]]:
    """What performance data say of the errors of a model's service times and first tokens."""
    if isinstance(data, TokenModels):
        bands = [one.bands for one in data.models[model].slices.values()]
        if None not in bands:
            return [(_of(one.tpot), _of(one.ttft)) for one in bands if one]
    known = data.models[model]
    places = ((known, "error"), (known, "solo_error"), (known, "pair_error"), (data, "error"))
    errors = [found for holder, name in places if (found := getattr(holder, name, None)) is not None]
    if not errors and not data.measured:
        raise ValueError(f"policy.uncertainty.service: fitted, but the performance data {data.name} state no error of "
                         f"{model}; write a percentage, such as 5%")
    spreads = [Spread(0.0, math.log1p(one.p95) / ABSOLUTE) for one in errors] or [Spread()]
    return [(one, one) for one in spreads]


def _of(band: Band) -> Spread:
    low, high = math.log(band.low), math.log(band.high)
    return Spread((low + high) / 2, (high - low) / 2 / NINETY)

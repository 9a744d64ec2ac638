"""Performance data: the kinds that a file may hold, the shipped data by name, and the errors of their predictions. An
error is a band of the ratio of measured to predicted times.

What counts for a band, in this order: bands of a language model's requests; errors by slice type and batch size; the
error that a fit states of a model or of all of its data, taken as lognormal with median 1, and wider the fewer points
it was seen on. Times that were measured once have none.
"""

import math
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Annotated, Any, NamedTuple, cast, get_args

import yaml
from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from provision.models.base.errors import InputError
from provision.models.base.register import one_of
from provision.models.performance.bands import CONFIDENCE, NORMAL, Band, Spot, TokenBands
from provision.models.performance.colocation import Colocation
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import Gpulets
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.performance.operating_points import PerformanceData
from provision.models.performance.tokens.data import TokenModels

GROUP = "provision.performance"
"""The group of entry points with which other packages add kinds of performance data; each names a ``PerformanceData``
class.
"""

@cache
def further_kinds() -> dict[str, type[PerformanceData]]:
    """The kinds of data that other packages add, by name; they are imported when a file is first read."""
    return {entry.name: entry.load() for entry in entry_points(group=GROUP)}


def _any_kind(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """Validate performance data of one of this package's kinds or of a kind that another package adds."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    further = further_kinds()
    if isinstance(kind, str) and kind in further:
        return further[kind].model_validate(value)
    return handler(value)


OurData = MeasuredSegments | FittedNetworks | IgniterProfiles | Gpulets | Colocation | TokenModels
OurFile = Annotated[OurData, Field(discriminator="kind")]
KINDS = tuple(get_args(one.model_fields["kind"].annotation)[0] for one in get_args(OurData))
"""The names of this package's own kinds of data."""
PerformanceFile = Annotated[OurFile, WrapValidator(_any_kind)]
_ANY: TypeAdapter[OurFile] = TypeAdapter(PerformanceFile)


@cache
def shipped_performance() -> tuple[str, ...]:
    """The names of the shipped performance data, sorted."""
    folder = files("provision.models.performance") / "data"
    return tuple(sorted(path.name.removesuffix(".yaml") for path in folder.iterdir()))


@cache
def load_performance(name: str) -> PerformanceFile:
    """Load the shipped performance data of this name. Raises InputError if there is none; the message lists the shipped
    names.
    """
    if name not in shipped_performance():
        known = one_of(name, shipped_performance())
        raise InputError(f"unknown performance data {name!r}; {known}, or a path to a file")
    path = files("provision.models.performance") / "data" / f"{name}.yaml"
    return _ANY.validate_python(yaml.load(path.read_text(), yaml.CSafeLoader))


def resolve(performance: PerformanceFile | str | Sequence[PerformanceFile | str]) -> tuple[PerformanceFile, ...]:
    """Performance data as a tuple; a name is replaced by the shipped data of that name."""
    several: Sequence[PerformanceFile | str] = (
        performance if isinstance(performance, (list, tuple)) else [cast("PerformanceFile | str", performance)]
    )
    return tuple(load_performance(one) if isinstance(one, str) else one for one in several)


def reference(performance: PerformanceFile) -> str | dict[str, Any]:
    """The form in which a file refers to performance data: the name if the data ships, otherwise the whole content."""
    if performance.name in shipped_performance() and performance == load_performance(performance.name):
        return performance.name
    return performance.model_dump(mode="json")


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

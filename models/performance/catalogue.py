"""The catalogue of performance data: finds shipped data by name, and knows the kinds of data that a file may hold."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Annotated, Any, cast, get_args

import yaml
from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from provision.models.base.errors import InputError
from provision.models.base.register import one_of
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

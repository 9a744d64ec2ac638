"""The strict field types of all files of the package, and content as JSON can express it."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(strict=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]
PositiveCount = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
Fraction = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=1)]

MOST_PERCENTILE = 99.99
Percentile = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=50, le=MOST_PERCENTILE)]
"""A percentile of the latency of requests, in percent."""


def no_flag(value: object) -> object:
    """Refuse True and False where a version number is expected, since Python takes True for 1."""
    if isinstance(value, bool):
        raise ValueError(f"should be 1 (got {value})")
    return value


def absent(value: object) -> bool:
    """Whether a file leaves a field out because its value is None."""
    return value is None


def empty(value: object) -> bool:
    """Whether a file leaves a field out because its value is None, 0, false or empty."""
    return not value


def is_one(value: object) -> bool:
    """Whether a file leaves a field out because its value is 1."""
    return value == 1


Version = Annotated[Literal[1], BeforeValidator(no_flag)]
"""The version of a file format; so far there is only version 1."""


class Record(BaseModel):
    """Base of every domain object. Objects are validated at construction and immutable; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of_checked(cls, fields: dict[str, Any], given: set[str]) -> Self:
        """The object with these values, without validation.

        It is for tables whose columns were checked as a whole, and for parts of plans of a million replicas: objects
        that share ``given`` take a third of the memory of others.

        Parameters
        ----------
        fields
            The value of every field, in the order of the fields.
        given
            The names of the fields that count as given (``model_fields_set``). It is not copied.
        """
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", given)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made


def finite(content: object) -> Any:
    """Copy nested lists and dicts with None in place of every infinite number and NaN, which JSON lacks."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

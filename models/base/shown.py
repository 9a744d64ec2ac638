"""Shows results in notebooks: as HTML, and as pandas frames. The packages for both are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provision.models.base.errors import InputError
from provision.models.base.register import Register

if TYPE_CHECKING:
    from pandas import DataFrame

PAINTERS: Register[Callable[[object], str]] = Register("provision.notebook")
"""The functions that write HTML, by name. They belong to a higher layer; therefore entry points name them."""


class Shown:
    """Base of results that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        """The HTML of this object; Jupyter calls this method."""
        return PAINTERS["html"](self)


def frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A pandas frame of rows, each a mapping from column to value. Raises InputError if pandas is not installed."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise InputError("to_frame: pandas is not installed; pip install 'gpu-provision[pandas]'") from None
    return DataFrame(list(rows))

"""What notebooks ask of results: HTML, and tables as pandas frames. Both are loaded when first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

PAINTER = "provision.draw.notebook"
"""How things look is not for this floor to say: this module is asked, by name."""


class Shown:
    """Something that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        """The HTML that Jupyter asks for."""
        html: str = import_module(PAINTER).html_of(self)
        return html


def frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows by column as a pandas frame.

    Raises
    ------
    InputError
        Where pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise InputError("to_frame: pandas is not installed; pip install 'provision[pandas]'") from None
    return DataFrame(list(rows))

"""What notebooks ask of results: HTML, and tables as pandas frames. Both are loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provision.models.base.errors import InputError
from provision.models.base.register import Register

if TYPE_CHECKING:
    from pandas import DataFrame

PAINTERS: Register[Callable[[object], str]] = Register("provision.notebook")
"""What draws HTML. How things look is not for this floor to say: the entry point ``html`` is asked."""


class Shown:
    """Something that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        """The HTML that Jupyter asks for."""
        return PAINTERS["html"](self)


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

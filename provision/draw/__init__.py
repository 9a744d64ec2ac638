"""Draws plans in the terminal, as pictures and as HTML pages; and draws the results of sweeps, fits and replays.

Most modules use matplotlib, which is slow to load; therefore ``draw.picture`` and others are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from provision.models.base.errors import optional

if TYPE_CHECKING:
    from provision.draw import convergence as convergence
    from provision.draw import fit_plot as fit_plot
    from provision.draw import latencies as latencies
    from provision.draw import page as page
    from provision.draw import picture as picture
    from provision.draw import sweep as sweep
    from provision.draw import terminal as terminal

__all__ = ["convergence", "fit_plot", "latencies", "page", "picture", "sweep", "terminal"]

if not TYPE_CHECKING:  # a type checker takes a module with ``__getattr__`` to have every name

    def __getattr__(name: str) -> object:
        """The module of this name in ``__all__``, imported on its first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with optional():
            return import_module(f"{__name__}.{name}")

"""Loops that numba compiles where it is installed. Otherwise plain Python runs them, some fifty times slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled if that is possible."""
    try:
        from numba import njit
    except ImportError:
        return function
    return cast("Callable[P, R]", njit(cache=True)(function))

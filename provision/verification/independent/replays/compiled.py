"""Loops that Numba compiles."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled when it is first called."""
    return cast("Callable[P, R]", njit(cache=True)(function))

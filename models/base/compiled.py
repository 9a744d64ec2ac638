"""Kernels: functions over arrays that Numba compiles, or that run as plain Python if Numba is not installed. The logger
of this module tells the user once that kernels are being compiled, or that Numba is missing. Python writes the message
to stderr unless the caller has set up logging.
"""

import logging
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from provision.models.base.plain_kernel import plain_kernel

ANNOUNCEMENT = "compiling kernels, once on this machine: seconds to a minute (`provision warm-up` does it ahead)"
SLOWLY = "numba is not installed: plain Python takes its place, far slower; pip install 'provision[compiled]'"
_logger = logging.getLogger(__name__)
_missed: list[str] = []


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator: compile the function when it is first called, and keep the result on disk for other processes.

    Without Numba the function runs as plain Python; a warning tells once that this is slow.
    """
    if compiles():
        from provision.models.base.kernel_cache import kernel

        return kernel(function, _miss)

    return plain_kernel(function, partial(_tell, SLOWLY))


def inner(function: Callable[..., Any]) -> Any:
    """Decorator: like ``compiled``, for functions that only kernels call. They compile in about half the time."""
    if compiles():
        from provision.models.base.kernel_cache import kernel

        return kernel(function, _miss, no_cpython_wrapper=True)
    return function


def compiles() -> bool:
    """Whether kernels are compiled, that is, whether Numba is installed."""
    return find_spec("numba") is not None


def unwarmed() -> int:
    """The number of kernels that this process had to compile because no compiled form was on disk."""
    return len(_missed)


def _miss(name: str) -> None:
    """Count a kernel that has to be compiled, and announce the first such kernel."""
    _tell(ANNOUNCEMENT)
    _missed.append(name)


@cache
def _tell(text: str) -> None:
    _logger.warning(text)

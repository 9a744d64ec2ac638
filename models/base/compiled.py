"""Kernels: functions over arrays that Numba compiles. The logger of this module tells the user once that kernels are
being compiled. Python writes the message to stderr unless the caller has set up logging.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

ANNOUNCEMENT = "compiling kernels, each once on this machine: seconds to a minute (`provision warm-up` does it ahead)"
_logger = logging.getLogger(__name__)
_missed: list[str] = []


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator: compile the function when it is first called, and keep the result on disk for other processes."""
    return _kernel(function)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator: like ``compiled``, for functions that only kernels call. They compile in about half the time."""
    return _kernel(function, no_cpython_wrapper=True)


def _kernel(function: Callable[..., Any], **options: bool) -> Any:
    """The kernel of a function. Numba, which takes long to load, is loaded with the first kernel."""
    from provision.models.base.kernel_cache import kernel

    return kernel(function, _miss, **options)


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

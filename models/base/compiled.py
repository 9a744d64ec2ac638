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
    from provision.models.base.kernel_cache import kernel  # Numba, which takes long to load

    return kernel(function, _miss)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator: compile the function as a part of the kernels that call it, which takes less time than ``compiled``.
    Python cannot call it.
    """
    from provision.models.base.kernel_cache import linked_kernel

    return linked_kernel(function)


def unwarmed() -> int:
    """The number of kernels that this process had to compile because no compiled form was on disk."""
    return len(_missed)


def _miss(name: str) -> None:
    """Count a kernel that has to be compiled, and announce the first such kernel."""
    _tell(ANNOUNCEMENT)
    _missed.append(name)


@cache
def _tell(text: str) -> None:
    """Tell a text once."""
    _logger.warning(text)

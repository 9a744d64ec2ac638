"""Kernels: functions over arrays that Numba compiles, or that run as plain Python where it is not installed.

What a user should know is said once, by the logger of this module: Python writes it to stderr unless its caller has
set up logging.
"""

import logging
from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any

from provision.models.base.plain_kernel import plain_kernel

ANNOUNCEMENT = "compiling kernels, once on this machine: seconds to a minute (`provision warm-up` does it ahead)"
SLOWLY = "numba is not installed: plain Python takes its place, far slower; pip install 'provision[compiled]'"
_logger = logging.getLogger(__name__)
_missed: list[str] = []


def compiled(function: Callable[..., Any]) -> Any:
    """The function as a kernel, compiled when first called and kept for other processes.

    Without Numba it is the function itself, which says that it is slow.
    """
    if find_spec("numba") is not None:
        from provision.models.base.kernel_cache import kernel

        return kernel(function, _miss)

    plain = plain_kernel(function)

    @wraps(function)
    def slow(*arguments: Any) -> Any:
        _tell(SLOWLY)
        return plain(*arguments)

    return slow


def unwarmed() -> int:
    """How many kernels this process found on no disk and compiled."""
    return len(_missed)


def _miss(name: str) -> None:
    """Take notice of a kernel that has to be compiled."""
    _tell(ANNOUNCEMENT)
    _missed.append(name)


@cache
def _tell(text: str) -> None:
    _logger.warning(text)

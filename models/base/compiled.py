"""Compiled kernels: Numba's ``njit`` with a cache on disk that notices changes in callees.

Numba looks only at the file of the kernel itself (its manual, "Cache invalidation"); here the key of an entry
also covers the files of all kernels that it can reach by name. Where no folder for the cache can be written,
kernels are compiled anew in every process. The first kernel that is not there is announced in a line, by the logger of
this module: Python writes it to stderr unless its caller has set up logging.
"""

import logging
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

ANNOUNCEMENT = "compiling kernels, once on this machine: seconds to minutes (`provision warm-up` does it ahead)"
_logger = logging.getLogger(__name__)


class _Cache(FunctionCache):
    """Numba's cache of one kernel; its source files stand in the key."""

    missed = 0
    """Kernels of all caches of this process that had to be compiled."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel from the disk; None, said once, where it has to be compiled."""
        found = self._kept(sig, target_context)
        if found is None:
            if not _Cache.missed:
                _logger.warning(ANNOUNCEMENT)
            _Cache.missed += 1
        return found

    def _kept(self, sig: Any, target_context: Any) -> Any:
        """The kernel from the disk; entries whose types are no longer in the code are thrown away."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError, EOFError, UnpicklingError):
            self.flush()  # type: ignore[no-untyped-call]
            return None

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        files = sorted({getfile(function) for function in _reached(self._py_func)})
        return (*super()._index_key(sig, codegen), *map(_digest, files))  # type: ignore[no-untyped-call]


def compiled(function: Callable[..., Any]) -> Any:
    """The function as a kernel, compiled when first called and kept for other processes."""
    kernel = njit(function)
    try:
        kernel._cache = _Cache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return kernel
    return kernel


def unwarmed() -> int:
    """How many kernels this process found on no disk and compiled."""
    return _Cache.missed


def _reached(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function and all kernels that it can name, and so on."""
    found = [function]
    for one in found:
        near = [kernel.py_func for kernel in one.__globals__.values() if isinstance(kernel, Dispatcher)]
        found += [kernel for kernel in near if kernel not in found]
    return found


@cache
def _digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()

"""Numba's ``njit`` with a cache on disk that notices changes in callees.

Numba looks only at the file of the kernel itself (its manual, "Cache invalidation"); here the key of an entry
also covers the files of all kernels that it can reach by name. Where no folder for the cache can be written,
kernels are compiled anew in every process.

Numba compiles a kernel again for a literal whole number or flag that another kernel passes to it. Where that would come
dear, kernels pass ``np.int64(0)``, or a float for a sign.
"""

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


class _Cache(FunctionCache):
    """Numba's cache of one kernel; its source files stand in the key."""

    def __init__(self, function: Callable[..., Any], missed: Callable[[str], None]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._missed = missed

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel from the disk; None, after word of it, where it has to be compiled."""
        found = self._kept(sig, target_context)
        if found is None:
            self._missed(self._py_func.__name__)
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


def kernel(function: Callable[..., Any], missed: Callable[[str], None]) -> Any:
    """The function as a kernel; ``missed`` is called with its name whenever it is on no disk and has to be compiled."""
    made = njit(function, nogil=True)
    try:
        made._cache = _Cache(function, missed)
    except RuntimeError:
        return made
    return made


def _reached(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function and all kernels that it can name, and so on."""
    found = [function]
    for one in found:
        near = [other.py_func for other in one.__globals__.values() if isinstance(other, Dispatcher)]
        found += [other for other in near if other not in found]
    return found


@cache
def _digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()

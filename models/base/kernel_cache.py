"""Numba's ``njit`` with a cache on disk that notices changes in callees.

Numba compiles a cached kernel again only when the kernel's own file changes (its manual, "Cache invalidation"). Here
the key of a cache entry also covers the files of all kernels that the kernel can reach by name, and that of the
compiler. Compiled kernels are kept in ``~/.cache/provision/kernels`` (see ``kept``), or in the folder that
``NUMBA_CACHE_DIR`` names. If the folder cannot be written, every process compiles its kernels again.

A wheel may contain kernels that were compiled for a common processor (``make wheel``). These are loaded if Python,
Numba and the sources are the same as at compilation and this processor has the instructions that the kernels use;
otherwise kernels are compiled on this machine.

Numba compiles a kernel once more for every literal integer or flag that another kernel passes to it. If these
compilations would take too long, kernels pass ``np.int64(0)`` instead of ``0``, or a signed float instead of a flag.
"""

import os
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from llvmlite.binding import get_host_cpu_features
from numba import njit
from numba.core import event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
)
from numba.core.dispatcher import Dispatcher

from provision.models.base import kernel_compiler
from provision.models.base.clock import COMPILING
from provision.models.base.kept import user_folder
from provision.models.base.kernel_compiler import KernelCompiler, LinkedCompiler

PORTABLE = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
"""The settings with which Numba compiles kernels for wheels, for the least processor that wheels support."""
_FEATURES = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")


class _Clocked(event.Listener):
    """Starts and stops the compile clock when Numba compiles."""

    def on_start(self, event: Any) -> None:
        """Called by Numba when it begins to compile a kernel."""
        COMPILING.begin()

    def on_end(self, event: Any) -> None:
        """Called by Numba when it has compiled a kernel, or has given up."""
        COMPILING.end()


event.register("numba:compile", _Clocked())  # type: ignore[no-untyped-call]


class _BesideSource(InTreeCacheLocator):
    """Tells Numba to keep kernels for a wheel beside their source."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        """The locator of a kernel; None if the kernel is not compiled for a wheel."""
        if os.environ.get("NUMBA_CPU_NAME") != PORTABLE["NUMBA_CPU_NAME"]:
            return None
        return super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]


class _UserFolder(InTreeCacheLocator):
    """Tells Numba to keep all other kernels in the user's cache folder."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        folder = self.get_suitable_cache_subpath(py_file)  # type: ignore[no-untyped-call]
        self._cache_path = str(user_folder() / "kernels" / folder)


class _Places(CompileResultCacheImpl):
    """The folders in which Numba keeps and finds compiled kernels; it uses the first folder that it can use."""

    _locator_classes = [UserProvidedCacheLocator, _BesideSource, _UserFolder]  # noqa: RUF012 - as Numba has it


class _Cache(FunctionCache):
    """Numba's cache of one kernel, with the digests of all its source files in the key."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any], missed: Callable[[str], None]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._missed = missed

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel from the disk; if the kernel has to be compiled, ``missed`` is called and None is
        returned.
        """
        found = self._kept(sig, target_context)
        if found is None:
            self._missed(self._py_func.__name__)
        return found

    def _kept(self, sig: Any, target_context: Any) -> Any:
        """The kernel from the user's cache or from the wheel, else None. If an entry is damaged or names types that no
        longer exist, all entries of the kernel are deleted.
        """
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            return self._shipped(sig, target_context) if found is None else found
        except (AttributeError, ImportError, EOFError, UnpicklingError):
            self.flush()  # type: ignore[no-untyped-call]
            return None

    def _shipped(self, sig: Any, target_context: Any) -> Any:
        """The kernel that the wheel ships beside the source; None if there is none or this processor cannot run it."""
        if not runs_portable():
            return None
        signature, (triple, *_), *sources = self._index_key(sig, target_context.codegen())
        beside, stamp = Path(getfile(self._py_func)).parent / "__pycache__", self._impl.locator.get_source_stamp()
        kept = IndexDataCacheFile(str(beside), self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]
        data = kept.load((signature, (triple, *PORTABLE.values()), *sources))  # type: ignore[no-untyped-call]
        return None if data is None else self._impl.rebuild(target_context, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        files = sorted({kernel_compiler.__file__, *(getfile(function) for function in _reached(self._py_func))})
        return (*super()._index_key(sig, codegen), *map(_digest, files))  # type: ignore[no-untyped-call]


def linked_kernel(function: Callable[..., Any]) -> Any:
    """Make a kernel of a function that only other kernels call; it is compiled with each of them, and not kept on disk
    by itself.
    """
    return njit(function, nogil=True, no_cpython_wrapper=True, pipeline_class=LinkedCompiler)  # type: ignore[call-overload]


def kernel(function: Callable[..., Any], missed: Callable[[str], None]) -> Any:
    """Make a kernel of a function; ``missed`` is called with its name whenever the kernel has to be compiled. If no
    folder can be written, every process compiles the kernel, and ``missed`` is not called.
    """
    made = njit(function, nogil=True, pipeline_class=KernelCompiler)
    try:
        made._cache = _Cache(function, missed)
    except RuntimeError:
        return made
    return made


def _reached(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function, the kernels among the globals of its module, the kernels among those of their modules, and so on.
    """
    found = [function]
    for one in found:
        near = [other.py_func for other in one.__globals__.values() if isinstance(other, Dispatcher)]
        found += [other for other in near if other not in found]
    return found


@cache
def runs_portable() -> bool:
    """Whether this processor has the instructions that kernels in wheels use."""
    features = get_host_cpu_features()
    return all(features.get(name, False) for name in _FEATURES)


@cache
def _digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()

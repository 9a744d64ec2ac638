"""Numba's ``njit`` with a cache on disk that notices changes in callees, and a compiler that makes faster kernels
sooner.

Numba compiles a cached kernel again only when the kernel's own file changes (its manual, "Cache invalidation"). Here
the key of a cache entry also covers the files of all kernels that the kernel can reach by name, and this file. Compiled
kernels are kept in ``~/.cache/provision/kernels`` (see ``kept``), or in the folder that ``NUMBA_CACHE_DIR`` names. If
the folder cannot be written, every process compiles its kernels again.

A wheel may contain kernels that were compiled for a common processor (``make wheel``). These are loaded if Python,
Numba and the sources are the same as at compilation and this processor has the instructions that the kernels use;
otherwise kernels are compiled on this machine.

Numba compiles a kernel once more for every literal integer or flag that another kernel passes to it. If these
compilations would take too long, kernels pass ``np.int64(0)`` instead of ``0``, or a signed float instead of a flag.

*Fewer reference counts.* Numba counts the references to arrays. A kernel that gets a NamedTuple of twenty arrays raises
twenty counts at its beginning and lowers them at its end. This takes longer than the work of most small kernels. A
kernel that makes no arrays need not count: its caller keeps the arrays alive.

*No machine code for inner kernels.* Most kernels are called by other kernels only, whose machine code contains them. So
they need no machine code, no entry point and no file of their own.
"""

import os
from collections.abc import Callable
from ctypes import c_void_p, cast, pythonapi
from functools import cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from llvmlite.binding import get_host_cpu_features
from numba import njit
from numba.core import event, ir, types
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.typed_passes import NopythonTypeInference

from provision.models.base.clock import COMPILING
from provision.models.base.kept import user_folder

BORROWING = {"cast", "phi", "exhaust_iter", "build_tuple", "getiter", "iternext", "pair_first", "pair_second"}
"""The operations whose results are parts of their operands, and not new arrays. So are parts of tuples, and slices."""


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _Borrowing(AnalysisPass):
    """Lets a kernel that makes no arrays count no references."""

    _name = "provision_borrowing"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Called by Numba when the types of all variables are known."""
        if not _makes_arrays(state):
            state.targetctx = state.targetctx.subtarget(enable_nrt=False)
        return False


def _makes_arrays(state: Any) -> bool:
    """Whether a kernel may make, keep or return what is counted, or copies an array (errors of its shape make texts).
    """
    models, types_of = state.targetctx.data_model_manager, state.typemap

    def counted(kind: Any) -> bool:
        return bool(models[kind].contains_nrt_meminfo())

    def borrows(value: Any, kind: Any) -> bool:
        """Whether an expression only reads what its operands have; ``kind`` is the type of its result."""
        if value.op == "getattr":
            return isinstance(types_of[value.value.name], types.BaseTuple) or not counted(kind)
        if value.op in ("getitem", "static_getitem"):
            index = types_of.get(getattr(value.index if value.op == "getitem" else value.index_var, "name", None))
            return not counted(kind) or index is None or not counted(index)
        if value.op == "call":
            called = types_of[value.func.name]
            if isinstance(called, types.BoundFunction) and isinstance(called.this, types.List):
                return False
            iterates = isinstance(kind, types.IteratorType) and not isinstance(kind, types.Generator)
            return not counted(kind) or isinstance(called, types.NamedTupleClass) or iterates
        return value.op in BORROWING or not counted(kind)

    def plain(one: Any) -> bool:
        if isinstance(one, ir.SetItem | ir.StaticSetItem | ir.SetAttr | ir.StoreMap):
            return not counted(types_of[one.value.name])
        value = one.value if isinstance(one, ir.Assign) else None
        kept = isinstance(value, ir.Yield) or isinstance(one, ir.DelItem)
        return not kept and (not isinstance(value, ir.Expr) or borrows(value, types_of[one.target.name]))

    every = [one for block in state.func_ir.blocks.values() for one in block.body]
    return counted(state.return_type) or not all(map(plain, every))


class KernelCompiler(Compiler):
    """Compiles a kernel, without reference counts if it makes no arrays."""

    def define_pipelines(self) -> Any:
        """The steps of the compiler; called by Numba."""
        [pipeline] = super().define_pipelines()  # type: ignore[no-untyped-call]
        pipeline.add_pass_after(_Borrowing, NopythonTypeInference)
        pipeline.finalize()
        return [pipeline]


class _Linked(JITCodeLibrary):
    """The code of a kernel that only other kernels call. Their libraries contain it; it has no machine code of its own.
    """

    @property
    def codegen(self) -> Any:
        """This library: Numba calls ``library.codegen.set_env``, which then does nothing."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Called by Numba with the environment of the machine code; does nothing."""

    def get_pointer_to_function(self, name: str) -> int:
        """The address of what runs when Python calls the kernel: a function of CPython's that raises TypeError."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return cast(pythonapi.PyErr_BadArgument, c_void_p).value or 0

    def _optimize_final_module(self) -> None:
        """Called by Numba when the code is complete; does nothing, since the kernels that call it optimize it with
        their own.
        """

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class LinkedCompiler(KernelCompiler):
    """Compiles a kernel that only other kernels call to a library of type _Linked."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *others: Any) -> None:
        linked = _Linked(targetctx.codegen(), "linked")  # type: ignore[no-untyped-call]
        super().__init__(typingctx, targetctx, linked, *others)  # type: ignore[no-untyped-call]


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
        files = sorted({__file__, *(getfile(function) for function in _reached(self._py_func))})
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

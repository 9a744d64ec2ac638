"""Numba's compiler, changed so that kernels run faster, and compile in less time.

*Fewer reference counts.* Numba counts the references to arrays. A kernel that gets a NamedTuple of twenty arrays raises
twenty counts at its beginning and lowers them at its end. This takes longer than the work of most small kernels. A
kernel that makes no arrays need not count: its caller keeps the arrays alive.

*No machine code for inner kernels.* Most kernels are called by other kernels only, whose machine code contains them. So
they need no machine code, no entry point and no file of their own.
"""

from ctypes import c_void_p, cast, pythonapi
from typing import Any

from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NopythonTypeInference

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

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class LinkedCompiler(KernelCompiler):
    """Compiles a kernel that only other kernels call to a library of type _Linked."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *others: Any) -> None:
        linked = _Linked(targetctx.codegen(), "linked")  # type: ignore[no-untyped-call]
        super().__init__(typingctx, targetctx, linked, *others)  # type: ignore[no-untyped-call]

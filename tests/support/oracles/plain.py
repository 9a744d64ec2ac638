"""Kernels as Python functions, for tests: Python cannot call kernels that only other kernels call."""

from types import FunctionType

from numba.core.dispatcher import Dispatcher


def plain(kernel):
    """The Python function of a kernel. The kernels that it calls are Python functions, too."""
    function = kernel.py_func
    called = {name: plain(one) for name, one in function.__globals__.items()
              if name in function.__code__.co_names and isinstance(one, Dispatcher)}
    return FunctionType(function.__code__, function.__globals__ | called, function.__name__, function.__defaults__)

"""Runs kernels in plain Python if Numba is not installed. A kernel reads and writes the fields of a record as
attributes. Numba compiles such code, but in plain Python the records of a NumPy array have no such attributes.
Therefore every structured array or record among the arguments of the outermost kernel is replaced by objects while the
kernel runs, and the fields of the objects are written back afterwards. Kernels called by the outermost kernel get the
same objects.
"""

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

Pairs = list[tuple[Any, Any]]
"""Pairs of a list of objects and the array whose records they replace."""


class _Running(threading.local):
    """Whether a kernel runs in this thread."""

    kernel = False


_running = _Running()


def plain_kernel(function: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    """Wrap a function so that it takes structured arrays, records, and named tuples of them.

    Each call calls ``tell`` first, unless another kernel makes it.
    """

    @wraps(function)
    def plain(*arguments: Any) -> Any:
        if _running.kernel:
            return function(*arguments)
        tell()
        pairs: Pairs = []
        opened = [_opened(argument, pairs) for argument in arguments]
        _running.kernel = True
        try:
            return function(*opened)
        finally:
            _running.kernel = False
            for objects, array in pairs:
                _write_back(objects, array)

    return plain


@cache
def _record(names: tuple[str, ...]) -> Any:
    """A class whose objects have the named fields as attributes."""
    def fill(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    return type("Record", (), {"__slots__": names, "__init__": fill})


def _opened(argument: Any, pairs: Pairs) -> Any:
    """The argument with objects in place of records; arrays that have to be written back are appended to ``pairs``."""
    if isinstance(argument, tuple) and hasattr(argument, "_fields"):
        return type(argument)(*(_opened(part, pairs) for part in argument))
    if not isinstance(argument, (np.ndarray, np.void)) or argument.dtype.names is None:
        return argument
    array = np.asarray(argument)
    make, objects = _record(argument.dtype.names), np.empty(array.shape, object)
    for at in np.ndindex(array.shape):
        objects[at] = make(array[at].item())
    if isinstance(argument, np.void) or array.flags.writeable:
        pairs.append((objects, argument))
    return objects[()] if array.ndim == 0 else objects


def _write_back(objects: Any, array: Any) -> None:
    """Copy the fields of the objects into the records of the array."""
    for name in array.dtype.names:
        values = [getattr(one, name) for one in objects.flat]
        array[name] = np.array(values, array.dtype[name]).reshape(np.shape(array))

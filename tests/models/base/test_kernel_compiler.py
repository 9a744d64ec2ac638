"""Kernels count references only where they must, and never too few or too many."""

import gc
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.caching import NullCache

from provision.models.base.compiled import compiled, inner


class Pair(NamedTuple):
    """Two arrays."""

    one: np.ndarray
    other: np.ndarray


@inner
def product(pair, at):
    row = pair.other[at:]
    return pair.one[at] * row[0]


@inner
def rest(pair, at):
    return pair.one[at:]


@inner
def swapped(pair):
    return Pair(pair.other, pair.one)


@compiled
def reads(pair):
    total = 0.0
    for at in range(len(pair.one)):
        total += product(pair, at)
    for value in pair.one:
        total += value
    for value, again in zip(pair.one, pair.other):  # noqa: B905 - as kernels have it
        total += value + again
    return total


@compiled
def writes(pair):
    for at in range(len(pair.one)):
        pair.one[at] = pair.other[at]
    return 0.0


@compiled
def views(pair):
    return rest(pair, 1)


@compiled
def swaps(pair):
    return swapped(pair)


@compiled
def sums(pair):
    return pair.one + pair.other


@compiled
def copies(pair):
    pair.one[:] = pair.other
    return rest(pair, 0)[0] + swapped(pair).one[0]


def pair_of(many):
    return Pair(np.arange(float(many)), np.arange(float(many)) + 1)


@pytest.mark.parametrize(("kernel", "counts"), [(reads, False), (writes, False), (sums, True), (copies, True)])
def test_only_kernels_that_make_arrays_count_references(kernel, counts, monkeypatch):
    """Of a kernel from the disk, which another process may have compiled, the instructions cannot be read."""
    kernel(pair_of(3))
    monkeypatch.setattr(kernel, "_cache", NullCache())
    kernel.recompile()
    parts = "".join(kernel.inspect_llvm().values()).split("define ")
    of_kernels = [part for part in parts if "cpython" not in part.partition("(")[0]]  # without the entry from Python
    assert any("call void @NRT_" in part for part in of_kernels) == counts


@pytest.mark.parametrize("kernel", [reads, writes, views, swaps, sums, copies])
def test_arrays_live_as_long_as_they_are_used(kernel):
    """What a kernel returns stays as it is when its arguments are gone, and nothing is kept that is not used."""
    arguments = pair_of(1000)
    before = [sys.getrefcount(one) for one in arguments]
    for _ in range(20):
        result = kernel(arguments)
    held = np.copy(result[0] if isinstance(result, tuple) else result)
    assert [sys.getrefcount(one) for one in arguments] == before or kernel in (views, swaps)
    kept, result = result, None
    del arguments
    gc.collect()
    filled = [np.full(1000, -1.0) for _ in range(50)]  # would take the place of memory that was freed too soon
    assert np.array_equal(held, kept[0] if isinstance(kept, tuple) else kept) and len(filled) == 50

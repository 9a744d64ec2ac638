"""The heap of kernels gives its rows in the order in which Python's heapq does."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from provision.models.base.compiled import compiled
from provision.models.base.heaps import drop_first, push


@compiled
def pushed(heap, size, key, number):
    """Only kernels can call ``push``."""
    return push(heap, size, key, number)


@compiled
def dropped(heap, size):
    """Only kernels can call ``drop_first``."""
    return drop_first(heap, size)


@given(st.lists(st.integers(-5, 5) | st.none(), max_size=60))
def test_rows_come_out_as_from_heapq(steps):
    """A number is added as a key, None takes the first row off."""
    heap, size, expected = np.empty((60, 2), np.int64), 0, []
    for number, key in enumerate(steps):
        if key is not None:
            size = pushed(heap, size, key, number)
            heapq.heappush(expected, (key, number))
        elif size:
            assert tuple(heap[0]) == heapq.heappop(expected)
            size = dropped(heap, size)
        assert size == len(expected)
    while size:
        assert tuple(heap[0]) == heapq.heappop(expected)
        size = dropped(heap, size)

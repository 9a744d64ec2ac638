"""A binary heap of (key, number) pairs in an integer array, for compiled kernels.

The array has shape (capacity, 2); row 0 has the least key. Numba compiles ``heapq`` too, but to code that is ten times
as slow.
"""

from provision.models.base.arrays import Ints
from provision.models.base.compiled import inner


@inner
def push(heap: Ints, size: int, key: int, number: int) -> int:
    """Add the pair (key, number) to a heap of ``size`` rows, and return the new size."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if heap[parent, 0] < key or (heap[parent, 0] == key and heap[parent, 1] <= number):
            break
        heap[child, 0], heap[child, 1] = heap[parent, 0], heap[parent, 1]
        child = parent
    heap[child, 0], heap[child, 1] = key, number
    return size + 1


@inner
def drop_first(heap: Ints, size: int) -> int:
    """Remove row 0, which has the least key, from a heap of ``size`` rows, and return the new size."""
    size -= 1
    key, number, parent = heap[size, 0], heap[size, 1], 0
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        other = child + 1
        if other < size and (heap[other, 0] < heap[child, 0]
                             or (heap[other, 0] == heap[child, 0] and heap[other, 1] < heap[child, 1])):
            child = other
        if key < heap[child, 0] or (key == heap[child, 0] and number <= heap[child, 1]):
            break
        heap[parent, 0], heap[parent, 1] = heap[child, 0], heap[child, 1]
        parent = child
    heap[parent, 0], heap[parent, 1] = key, number
    return size

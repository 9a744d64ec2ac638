"""A binary heap of requests inside the table of requests. The key is ``ends``, the iteration of a request's last token.

``requests[i].heap`` is the request at position i of the heap, and ``requests[r].place`` is the position of request r,
so that any request can be removed.
"""

import numpy as np

from provision.models.base.compiled import inner


@inner
def push(requests: np.ndarray, size: int, request: int) -> None:
    """Add a request to a heap of ``size`` entries."""
    _put(requests, size, request)
    _rise(requests, size)


@inner
def take(requests: np.ndarray, size: int, request: int) -> None:
    """Remove a request from a heap of ``size`` entries."""
    hole, last = requests[request].place, requests[size - 1].heap
    if last != request:
        _put(requests, hole, last)
        _rise(requests, hole)
        _sink(requests, size - 1, requests[last].place)


@inner
def _rise(requests: np.ndarray, child: int) -> None:
    while child > 0 and _key(requests, (child - 1) // 2) > _key(requests, child):
        _swap(requests, child, (child - 1) // 2)
        child = (child - 1) // 2


@inner
def _sink(requests: np.ndarray, size: int, parent: int) -> None:
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and _key(requests, child + 1) < _key(requests, child):
            child += 1
        if _key(requests, parent) <= _key(requests, child):
            return
        _swap(requests, child, parent)
        parent = child


@inner
def _swap(requests: np.ndarray, one: int, other: int) -> None:
    first, second = requests[one].heap, requests[other].heap
    _put(requests, one, second)
    _put(requests, other, first)


@inner
def _put(requests: np.ndarray, place: int, request: int) -> None:
    requests[place].heap = request
    requests[request].place = place


@inner
def _key(requests: np.ndarray, place: int) -> int:
    return requests[requests[place].heap].ends

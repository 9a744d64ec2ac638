"""The batch sizes with which gpu-lets run: the largest feasible ones (ATC 2022, Algorithm 1, line 27).

Methods search with the smallest batches that carry the rates. A server takes the requests that wait, up to its batch
size. So a larger size costs nothing while few requests wait, and it shortens the queue sooner after a burst. But a
larger batch also slows the other part of the GPU more. So plans that were made without interference keep the smallest
batches.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE, Part, TurnTables
from provision.models.base.arrays import Floats

Batches = Sequence[Sequence[int]]
"""For each part of a GPU, the batch sizes of its replicas as indices into ``TurnTables.batches``."""


def largest_batches(tables: TurnTables, parts: Sequence[Part]) -> Batches:
    """The largest batches for the parts of one GPU: none of them alone could be one size larger.

    The search starts from the smallest batches. Again and again, the replica whose batch is fullest at its rate gets
    the next size, as long as every SLO and rate is kept.

    Parameters
    ----------
    tables, parts
        As for GpuletTables.settle, which must find batches.
    """
    settled = tables.settle(parts)
    assert settled is not None, "the parts hold"
    batches: Batches = settled
    if len(parts) > 1 and not tables.interference:
        return batches
    while grown := next((sizes for sizes in _grown(tables, parts, batches) if _holds(tables, parts, sizes)), None):
        batches = grown
    return batches


def _grown(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> Iterator[Batches]:
    """Yield copies of ``batches`` in each of which one replica has the next larger batch size. The copy for the replica
    with the fullest batches comes first, the copy for the least full last.
    """
    full = [
        (load_rps * busy_ms.sum() / tables.batches[size], part, at)
        for part, ((_, load), busy_ms) in enumerate(zip(parts, _busy(tables, parts, batches), strict=True))
        for at, ((_, load_rps), size) in enumerate(zip(load, batches[part], strict=True))
    ]
    for _, part, at in sorted(full, reverse=True):
        sizes = [list(one) for one in batches]
        sizes[part][at] += 1
        if sizes[part][at] < len(tables.batches):
            yield sizes


def _holds(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> bool:
    """Whether every replica keeps its latency at its rate with these batches."""
    for (_, load), sizes, busy_ms in zip(parts, batches, _busy(tables, parts, batches), strict=True):
        who, rates = np.array([one for one, _ in load]), np.array([rate for _, rate in load])
        if (busy_ms.sum() > tables.room_ms(who, rates, np.array(sizes), busy_ms, len(load) > 1)).any():
            return False
    return True


def _busy(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> list[Floats]:
    """The execution times (ms) of the replicas of every part, beside the other part."""
    felt = [tables.felt(share, load, sizes) for (share, load), sizes in zip(parts, batches, strict=True)]
    received = felt[::-1] if len(parts) > 1 else [ALONE]
    return [
        tables.beside(share, pressure)[[one for one, _ in load], sizes]
        for (share, load), sizes, pressure in zip(parts, batches, received, strict=True)
    ]

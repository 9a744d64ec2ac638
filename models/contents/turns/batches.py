"""The batches that gpu-lets run with: the largest that hold (ATC 2022, Algorithm 1, line 27).

Methods reckon with the smallest batches that carry the rates. A server takes what waits up to its batch, so that a
larger one costs nothing while little waits, and after a burst fewer rounds make up for it. A larger batch presses
harder on the other part, though: where interference was not looked at, the smallest stay.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.contents.turns.tables import ALONE, ROUNDING, Part, TurnTables

Batches = Sequence[Sequence[int]]
"""For every part, the batches of its replicas as indices into ``TurnTables.batches``."""


def largest_batches(tables: TurnTables, parts: Sequence[Part]) -> Batches:
    """Batches for the parts of one GPU beside each other that no replica can grow from.

    From the smallest on, the fullest replica at its rate grows where every SLO and rate still holds.

    Parameters
    ----------
    tables, parts
        As for GpuletTables.settle, which must have an answer.
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
    """Batches with the next size for one replica, for the fullest first."""
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
    """Whether every replica meets its SLO and carries its rate."""
    for (_, load), sizes, busy_ms in zip(parts, batches, _busy(tables, parts, batches), strict=True):
        who, rates = np.array([one for one, _ in load]), np.array([rate for _, rate in load])
        in_time = busy_ms.sum() + busy_ms <= tables.allowed_ms[who]
        carried = rates * busy_ms.sum() <= 1000 * tables.batches[sizes] * (1 + ROUNDING)
        if not (in_time & carried).all():
            return False
    return True


def _busy(tables: TurnTables, parts: Sequence[Part], batches: Batches) -> list[Floats]:
    """Executions (ms) of the replicas of every part beside the other part."""
    felt = [tables.felt(share, load, sizes) for (share, load), sizes in zip(parts, batches, strict=True)]
    received = felt[::-1] if len(parts) > 1 else [ALONE]
    return [
        tables.beside(share, pressure)[[one for one, _ in load], sizes]
        for (share, load), sizes, pressure in zip(parts, batches, received, strict=True)
    ]

"""The fraction of late requests, with confidence bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

import numpy as np
from scipy import special

CONFIDENCE = 0.999
"""The confidence of a verdict on a workload, by Student's t over independent replays."""
FEWEST_REPLAYS = 16
MOST_REQUESTS = 2**20
"""The most requests of one replay. If more are needed, there are more replays."""
CLUMP = 200
"""Late requests come in clumps of about this size.

If none of N requests is late, the fraction of late requests is at most ``-ln(1 - confidence) CLUMP / N``.
"""


@dataclass(frozen=True)
class Late:
    """The fraction of late requests, with lower and upper bounds at CONFIDENCE each, and the ``allowed`` fraction."""

    part: float
    low: float
    high: float
    allowed: float
    requests: int

    @property
    def verdict(self) -> str:
        """"holds", "violated" or "not decided"."""
        if self.high <= self.allowed:
            return "holds"
        return "violated" if self.low > self.allowed else "not decided"


Counts = list[tuple[int, int]]
"""For each thing that is judged, the number of late requests and the number of counted requests."""


def judged(replay: Callable[[int, int], Counts], allowed: list[float], requests: int, budget_s: float) -> list[Late]:
    """Replay until every fraction of late requests is decided, or the time is over.

    Parameters
    ----------
    replay
        ``replay(seed, requests)`` returns the Counts, always in the same order.
    allowed
        For each thing that is judged, the fraction of requests that may be late.
    requests
        The requests of the first replays. Each round takes four times as many as the previous round.
    budget_s
        The most seconds of CPU time. No round begins that would probably exceed it.
    """
    rows, seed, replays = [replay(0, requests)], 1, FEWEST_REPLAYS
    begun = process_time()  # after the first replay, which may have compiled loops
    while True:
        more = replays - len(rows)
        rows += [replay(seed + one, requests) for one in range(more)]
        seed += more
        found = [_late([row[at] for row in rows], one) for at, one in enumerate(allowed)]
        spent = process_time() - begun
        if all(one.verdict != "not decided" for one in found) or spent * 4 > budget_s:
            return found
        rows = []
        if requests * 4 <= MOST_REQUESTS:
            requests *= 4
        else:
            replays *= 4


def _late(runs: Counts, allowed: float) -> Late:
    late, counted = (np.array(column, float) for column in zip(*runs, strict=True))
    total = float(counted.sum())
    if total == 0:
        return Late(0.0, 0.0, 0.0, allowed, 0)
    parts = late / np.maximum(counted, 1)
    part = float(late.sum() / total)
    spread = float(special.stdtrit(len(runs) - 1, CONFIDENCE) * parts.std(ddof=1) / np.sqrt(len(runs)))
    unseen = float(-np.log(1 - CONFIDENCE) * CLUMP / total)
    high = part + spread if late.any() else unseen
    return Late(part, max(part - spread, 0.0), min(high, 1.0), allowed, int(total))

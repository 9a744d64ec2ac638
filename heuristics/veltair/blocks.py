"""Layer blocks: VELTAIR's dynamic threshold (ASPLOS 2022, Algorithm 2 and section 4.3).

Followed: a model's average cores are the fewest on which all of it keeps its QoS; conflict-prone layers need at least
that plus the threshold (lines 1-11); a block has the sum of its layers' targets and the fewest cores that keep it
(section 4.2); idle cores are dealt out as thresholds by the models' average cores (section 4.3).

Guessed: the printed algorithm and its text differ. ``first_pivot`` is the algorithm as printed: a block reaches to
the next conflict-prone layer. The higher the threshold, the fewer and larger are its blocks, and a conflict-prone layer
right before another is a block by itself, with all its cores. The text wants no block of more than average plus
threshold cores, layers on their own at low load and larger blocks at high load, and figure 14a shows that.
``block_end``, which the scheduler uses, does it: the shortest block that, like all that is left behind it, gets by
with so many cores. If there is none, as after the threshold fell, the block reaches to the end of the model. Where
no number of cores keeps a target by 5 %, the fewest within 5 % of the fastest count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.compiled import compiled

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats, Ints

SLACK = 1.05


@compiled
def least_cores(until_s: Floats, target_s: Floats, begin: int, end: int) -> int:
    """The fewest cores on which the layers ``begin`` to ``end`` keep the sum of their targets, or nearly the fastest.

    Parameters
    ----------
    until_s
        Time of all layers before each, (cores, layers + 1).
    target_s
        Sum of the targets of all layers before each, (layers + 1).
    begin, end
        The first layer, and the one after the last.
    """
    times_s = until_s[:, end] - until_s[:, begin]
    limit_s = max(target_s[end] - target_s[begin], SLACK * times_s.min())
    cores = 1
    while times_s[cores - 1] > limit_s:
        cores += 1
    return cores


@compiled
def first_pivot(until_s: Floats, target_s: Floats, begin: int, last: int, most: float) -> int:
    """The first layer behind ``begin`` that needs ``most`` cores; ``last`` if there is none."""
    for layer in range(begin + 1, last):
        if least_cores(until_s, target_s, layer, layer + 1) >= most:
            return layer
    return last


@compiled
def block_end(until_s: Floats, target_s: Floats, begin: int, last: int, most: float) -> int:
    """The end of the shortest block from ``begin`` on that, like the layers behind it, gets by with ``most`` cores."""
    for end in range(begin + 1, last):
        if (
            least_cores(until_s, target_s, begin, end) <= most
            and least_cores(until_s, target_s, end, last) <= most
        ):
            return end
    return last


@compiled
def threshold(cores: int, own: float, total: float) -> float:
    """Cores beyond its average that a model's blocks may have: its part of what all the averages leave idle."""
    return max(cores - total, 0.0) * own / total


def blocks_of(
    cut: Callable[[Floats, Floats, int, int, float], int], until_s: Floats, target_s: Floats, most: float
) -> Ints:
    """All blocks of a model, as (begin, end, cores).

    Parameters
    ----------
    cut
        ``first_pivot`` or ``block_end``.
    until_s, target_s
        As ``least_cores`` has them.
    most
        Average cores plus threshold.
    """
    blocks, begin, last = [], 0, len(target_s) - 1
    while begin < last:
        end = cut(until_s, target_s, begin, last, most)
        blocks.append((begin, end, least_cores(until_s, target_s, begin, end)))
        begin = end
    return np.array(blocks)

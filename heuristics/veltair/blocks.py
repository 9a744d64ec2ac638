"""Layer blocks: VELTAIR's dynamic threshold (ASPLOS 2022, Algorithm 2 and section 4.3).

From the paper: a model's average cores are the fewest on which the whole model keeps its QoS. Conflict-prone layers
need at least that number plus the threshold (lines 1-11). The target time of a block is the sum of its layers' targets,
and it gets the fewest cores that keep it (section 4.2). Idle cores are divided among the models, as their thresholds,
in proportion to their average cores (section 4.3).

Guessed: the printed algorithm and its text differ. ``first_pivot`` is the algorithm as printed: a block ends at the
next conflict-prone layer. With a higher threshold, blocks are fewer and larger, and a conflict-prone layer right before
another is a block by itself, with all the cores that it needs. By the text, and figure 14a, no block has more than
average plus threshold cores, and layers are blocks of their own at low load, with larger blocks at high load.
``block_end``, which the scheduler uses, does that: it takes the shortest block such that both the block and all layers
behind it need at most average plus threshold cores. If there is none, as after the threshold fell, the block ends with
the model. Where no number of cores keeps a target within 5 %, the fewest cores within 5 % of the fastest time are
taken.
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
    """The end of the shortest block from ``begin`` such that it, and the layers behind it, need at most ``most`` cores.
    """
    for end in range(begin + 1, last):
        if (
            least_cores(until_s, target_s, begin, end) <= most
            and least_cores(until_s, target_s, end, last) <= most
        ):
            return end
    return last


@compiled
def threshold(cores: int, own: float, total: float) -> float:
    """Cores beyond its average that a model's blocks may have: its share of the cores that all averages leave idle."""
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

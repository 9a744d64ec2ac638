"""Layer blocks: VELTAIR's dynamic threshold (ASPLOS 2022, Algorithm 2 and section 4.3).

From the paper: a model's average cores are the fewest on which the whole model keeps its QoS. Conflict-prone layers
need at least that number plus the threshold (lines 1-11). The target time of a block is the sum of its layers' targets,
and it gets the fewest cores that keep it (section 4.2). The threshold of a model is its part of the idle cores, which
are divided in proportion to the models' average cores (section 4.3). The following is guessed, since the printed
algorithm and the text of the paper differ. ``first_pivot`` is the algorithm as printed: a block ends at the next
conflict-prone layer. With a higher threshold, blocks are fewer and larger, and a conflict-prone layer right before
another is a block by itself, with all the cores that it needs. By the text, and figure 14a, no block has more than
average plus threshold cores, and layers are blocks of their own at low load, with larger blocks at high load.
``block_end``, which the scheduler uses, follows the text: it takes the shortest block such that both the block and all
layers after it need at most average plus threshold cores. If there is none, for example after the threshold fell, the
block ends with the model. If no number of cores keeps a target within 5 %, the fewest cores within 5 % of the fastest
time are taken.
"""

from collections.abc import Callable

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled

SLACK = 1.05
GRAIN = 8
"""Cores are given in groups of so many, as in the public program."""


@compiled
def least_cores(until_s: Floats, target_s: Floats, begin: int, end: int) -> int:
    """The fewest cores, in groups of GRAIN, on which the layers ``begin`` to ``end`` keep the sum of their targets, or
    come within SLACK of the fastest time.

    Parameters
    ----------
    until_s
        The time of all layers before each layer in s, (cores, layers + 1).
    target_s
        The sum of the targets of all layers before each layer in s, (layers + 1,).
    begin, end
        The first layer, and the layer after the last.
    """
    times_s = until_s[:, end] - until_s[:, begin]
    most = len(times_s)
    limit_s = target_s[end] - target_s[begin]
    best_s = times_s[most - 1]
    for cores in range(GRAIN, most, GRAIN):
        best_s = min(best_s, times_s[cores - 1])
    limit_s = max(limit_s, SLACK * best_s)
    for cores in range(GRAIN, most, GRAIN):
        if times_s[cores - 1] <= limit_s:
            return cores
    return most


@compiled
def first_pivot(until_s: Floats, target_s: Floats, begin: int, last: int, most: float) -> int:
    """The first layer after ``begin`` that needs at least ``most`` cores; ``last`` if there is none."""
    for layer in range(begin + 1, last):
        if least_cores(until_s, target_s, layer, layer + 1) >= most:
            return layer
    return last


@compiled
def block_end(until_s: Floats, target_s: Floats, begin: int, last: int, most: float) -> int:
    """The end of the shortest block from ``begin`` such that the block, and also the layers after it, need at most
    ``most`` cores.
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
    """The number of cores beyond its average that the blocks of a model may have: its share of the cores that the
    averages of all models leave idle.
    """
    return max(cores - total, 0.0) * own / total


def blocks_of(
    cut: Callable[[Floats, Floats, int, int, float], int], until_s: Floats, target_s: Floats, most: float
) -> Ints:
    """(blocks, 3), the blocks of a model, as (begin, end, cores).

    Parameters
    ----------
    cut
        The function that ends blocks: ``first_pivot`` or ``block_end``.
    until_s, target_s
        As for ``least_cores``.
    most
        The average cores plus the threshold.
    """
    blocks, begin, last = [], 0, len(target_s) - 1
    while begin < last:
        end = cut(until_s, target_s, begin, last, most)
        blocks.append((begin, end, least_cores(until_s, target_s, begin, end)))
        begin = end
    return np.array(blocks)

"""Code versions and blocks of layers: VELTAIR's compiler and its dynamic threshold (ASPLOS 2022, Algorithms 1 and 2).

*Versions* (the single-pass compiler, Algorithm 1). From the paper: every layer gets a share of the QoS time in
proportion to its operations (lines 2-3). Among the candidate versions (line 4), those that keep this share are kept
(line 5), and of these the dominant versions (lines 6-7 and 14-29): no other version has both a smaller block and less
parallelism. They are sorted by block (line 8), and at most V of them are picked at equal distances (lines 9-12). A
version is removed if without it the rest stays within 10 % of all V at every interference level (section 4.1).

The following is guessed or differs from the paper:

- the candidates are not sampled by TVM's auto-scheduler but all tilings of a grid, timed by the analytical model;
- parallelism is the number of chunks: the micro-kernel and so the unrolling are the same in all versions;
- times are taken on the model's average cores, which are about as many as a layer gets. If no version keeps the share
  on these cores, as in layers of few operations and many weights, all versions within 10 % of the fastest count;
- versions are tried for removal from the smallest block on.

*Blocks* (the dynamic threshold, Algorithm 2 and section 4.3). From the paper: a model's average cores are the fewest on
which the whole model keeps its QoS. Conflict-prone layers need at least that number plus the threshold (lines 1-11).
The target time of a block is the sum of its layers' targets, and it gets the fewest cores that keep it (section 4.2).
The threshold of a model is its part of the idle cores, which are divided in proportion to the models' average cores
(section 4.3). The following is guessed, since the printed algorithm and the text of the paper differ. ``first_pivot``
is the algorithm as printed: a block ends at the next conflict-prone layer. With a higher threshold, blocks are fewer
and larger, and a conflict-prone layer right before another is a block by itself, with all the cores that it needs. By
the text, and figure 14a, no block has more than average plus threshold cores, and layers are blocks of their own at low
load, with larger blocks at high load. ``block_end``, which the scheduler uses, follows the text: it takes the shortest
block such that both the block and all layers after it need at most average plus threshold cores. If there is none, for
example after the threshold fell, the block ends with the model. If no number of cores keeps a target within 5 %, the
fewest cores within 5 % of the fastest time are taken.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.cpu.cpu import TILE_COLUMNS, TILE_ROWS, VERSION, Cpu, core_scaling, version
from provision.models.cpu.layers import Layer, Network

MOST_VERSIONS = 5
"""The most versions of a layer, V of the paper."""
CLOSE = 0.9
"""The performance relative to the best that counts as close enough."""
LEVELS = (np.arange(10) / 10) ** 2
"""The interference levels: the fraction of the CPU's bandwidths that other tenants use. Small levels are closer to each
other, since DNNs that share the CPU cause small levels.
"""
CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SPLITS = (1, 2, 4, 8, 16)
LEAST_DEPTH = 64
"""The least length of the parts into which sums are split."""


def layer_targets_s(network: Network, planned: float) -> Floats:
    """(layers,), the target time of every layer in s: its part of ``planned`` times the QoS time, in proportion to
    operations (line 3).
    """
    return planned * network.qos_ms / 1e3 * np.array([layer.flops for layer in network.layers]) / network.flops


def fastest_alone(layer: Layer, cpu: Cpu) -> NDArray[np.void]:
    """(1,), the version that is fastest alone on all cores, as a tuner without neighbours would return it."""
    candidates = candidates_of(layer, cpu)
    return candidates[[core_scaling(candidates, 0.0, cpu)[:, -1].argmin()]]


def versions_of(layer: Layer, target_s: float, cores: int, cpu: Cpu, most: int = MOST_VERSIONS) -> NDArray[np.void]:
    """The versions of a layer to compile, an array of VERSION sorted by block (Algorithm 1).

    Parameters
    ----------
    layer
        The layer to compile.
    target_s
        The share of the QoS time that the layer gets.
    cores
        The average cores of the layer's model.
    cpu
        The CPU.
    most
        The most versions, V of the paper.
    """
    candidates = candidates_of(layer, cpu)
    fast = candidates[within(core_scaling(candidates, 0.0, cpu)[:, cores - 1], target_s)]
    picked = uniform(dominant(fast), most)
    return pruned(picked, levels_s(picked, cores, cpu))


def candidates_of(layer: Layer, cpu: Cpu) -> NDArray[np.void]:
    """All tilings of the grid, as an array of VERSION."""
    rows = sorted({-(-layer.m // cut) for cut in CUTS if layer.m >= cut * TILE_ROWS} | {layer.m})
    columns = sorted({-(-layer.n // cut) for cut in CUTS if layer.n >= cut * TILE_COLUMNS} | {layer.n})
    splits = [split for split in SPLITS if split == 1 or layer.k >= split * LEAST_DEPTH]
    return np.array([version(layer, *tiling, cpu) for tiling in product(rows, columns, splits)], VERSION)


def within(times_s: Floats, target_s: float) -> Bools:
    """(versions,), which versions keep the target; if none does, which versions are close to the fastest."""
    return times_s <= max(target_s, times_s.min() / CLOSE)


def dominant(versions: NDArray[np.void]) -> NDArray[np.void]:
    """The versions for which no other version has both a smaller block and less parallelism, sorted by block (lines 8,
    14-29).
    """
    ordered = versions[np.lexsort((versions["panel_bytes"], versions["chunks"], versions["block_bytes"]))]
    least = np.minimum.accumulate(np.concatenate([[np.inf], ordered["chunks"][:-1]]))
    return ordered[ordered["chunks"] < least]


def uniform(frontier: NDArray[np.void], most: int) -> NDArray[np.void]:
    """At most ``most`` versions of the frontier, evenly spaced from the smallest block on (lines 9-12)."""
    return frontier[np.unique(np.arange(most) * len(frontier) // most)]


def levels_s(versions: NDArray[np.void], cores: int, cpu: Cpu) -> Floats:
    """(levels, versions), the times of versions at all LEVELS on ``cores`` cores, in s."""
    return np.stack([core_scaling(versions, level, cpu)[:, cores - 1] for level in LEVELS])


def pruned(versions: NDArray[np.void], times_s: Floats) -> NDArray[np.void]:
    """The versions that are still needed. One after another, a version is removed if, at every level, the fastest of
    the others takes at most 1 / CLOSE times as long as the fastest of all.
    """
    goal, kept = times_s.min(axis=1) / CLOSE, list(range(len(versions)))
    for at in range(len(versions)):
        others = [other for other in kept if other != at]
        if others and (times_s[:, others].min(axis=1) <= goal).all():
            kept = others
    return versions[kept]


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

"""The profiles of models that VELTAIR's scheduler uses: versions, times, targets (ASPLOS 2022, section 4).

The following is guessed. For an interference level, the version is chosen that keeps the layer's target with the fewest
cores; among equals, the fastest. Without adaptive compilation a layer has the version that is fastest alone on all
cores, as TVM's tuner would return it, and is planned as if alone. All schedulers plan to run a query in 80 % of its QoS
time; the rest is for waiting and interference.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.heuristics.veltair.blocks import GRAIN, SLACK, least_cores
from provision.heuristics.veltair.versions import (
    LEVELS,
    MOST_VERSIONS,
    fastest_alone,
    layer_targets_s,
    levels_s,
    versions_of,
)
from provision.models.base.arrays import Floats, Ints
from provision.models.cpu.cpu import PUBLISHED, Cpu, core_scaling
from provision.models.cpu.layers import Layer, Network

PLANNED = 0.8


class Catalogue(NamedTuple):
    """Networks on a CPU as arrays; the layers of all networks follow one another.

    Attributes
    ----------
    versions
        The VERSION by plane and layer. There is a plane for each of LEVELS; a last plane has the versions that are
        fastest alone.
    until_s
        The planned time of all layers before each layer in s, (planes, cores, layers + 1).
    target_s
        The sum of the targets of all layers before each layer in s, (layers + 1,).
    first
        The first layer of every network, then the number of all layers.
    average
        The average cores by plane and network.
    slowdown
        By level, the slowdown of the version that is fastest alone, as a mean over all layers.
    qos_s
        The QoS time in s, by network.
    kept
        The number of versions, by layer.
    """

    versions: NDArray[np.void]
    until_s: Floats
    target_s: Floats
    first: Ints
    average: Floats
    slowdown: Floats
    qos_s: Floats
    kept: Ints


def catalogue(networks: Sequence[Network], cpu: Cpu = PUBLISHED, planned: float = PLANNED,
              most: int = MOST_VERSIONS) -> Catalogue:
    """The Catalogue of networks."""
    targets_s = [layer_targets_s(network, planned) for network in networks]
    target_s = _before(np.concatenate(targets_s))
    first = np.cumsum([0, *(len(network.layers) for network in networks)])
    layers = [layer._replace(name="") for network in networks for layer in network.layers]
    alone_s = _before(np.stack([_alone(layer, cpu)[1] for layer in layers], axis=-1))
    cores = np.repeat([least_cores(alone_s, target_s, *span) for span in pairwise(first)], np.diff(first))
    made = [_layer(*known, cpu, most) for known in zip(layers, np.concatenate(targets_s), cores.tolist(), strict=True)]
    chosen, times_s, kept, slower = zip(*made, strict=True)
    until_s = _before(np.stack(times_s, axis=-1))
    average = [[least_cores(plane, target_s, *span) for span in pairwise(first)] for plane in until_s]
    return Catalogue(
        np.stack(chosen, axis=-1), until_s, target_s, first, np.array(average, float), np.mean(slower, axis=0),
        np.array([network.qos_ms / 1e3 for network in networks]), np.array(kept),
    )


def _before(parts: Floats) -> Floats:
    """The sums of all elements before each element along the last axis, then the sum of all."""
    return np.concatenate([np.zeros_like(parts[..., :1]), np.cumsum(parts, axis=-1)], axis=-1)


@cache
def _alone(layer: Layer, cpu: Cpu) -> tuple[NDArray[np.void], Floats]:
    """(the version that is fastest alone, its times in s by number of cores)."""
    version = fastest_alone(layer, cpu)
    return version, core_scaling(version, 0.0, cpu)[0]


@cache
def _layer(layer: Layer, target_s: float, cores: int, cpu: Cpu,
           most: int) -> tuple[NDArray[np.void], Floats, int, Floats]:
    """(versions by plane, times (planes, cores) in s, number of versions, slowdown by level) of one layer."""
    versions, (alone, alone_s) = versions_of(layer, target_s, cores, cpu, most), _alone(layer, cpu)
    chosen, times_s = zip(*(_best(versions, level, target_s, cpu) for level in LEVELS), strict=True)
    planes = np.concatenate([versions[list(chosen)], alone])
    pressed_s = levels_s(alone, cores, cpu)[:, 0]
    return planes, np.stack([*times_s, alone_s]), len(versions), pressed_s / pressed_s[0]


def _best(versions: NDArray[np.void], level: float, target_s: float, cpu: Cpu) -> tuple[int, Floats]:
    """(index of the version for a level, its times in s by number of cores)."""
    times_s = core_scaling(versions, level, cpu)
    grouped_s = times_s[:, [*range(GRAIN - 1, cpu.cores - 1, GRAIN), cpu.cores - 1]]
    enough = grouped_s <= max(target_s, SLACK * grouped_s.min())
    groups = np.where(enough.any(axis=1), enough.argmax(axis=1), grouped_s.shape[1])
    ordered = np.lexsort((grouped_s[np.arange(len(versions)), np.minimum(groups, grouped_s.shape[1] - 1)], groups))
    return ordered[0], times_s[ordered[0]]

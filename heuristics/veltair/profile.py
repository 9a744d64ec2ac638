"""The profiles of models that VELTAIR's scheduler uses: versions, times, targets (ASPLOS 2022, section 4).

Guessed: for a level, the version is chosen that keeps the layer's target with the fewest cores, then by time. Without
adaptive compilation a layer has the version that is fastest alone on all cores, which TVM's tuner would return, and is
planned as if alone. All schedulers plan to run a query in 80 % of its QoS time; the rest is for waiting and
interference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.heuristics.veltair.blocks import SLACK, least_cores
from provision.heuristics.veltair.versions import (
    LEVELS,
    MOST_VERSIONS,
    fastest_alone,
    layer_targets_s,
    levels_s,
    versions_of,
)
from provision.models.cpu.cpu import PUBLISHED, core_scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from provision.models.base.arrays import Floats, Ints
    from provision.models.cpu.cpu import Cpu
    from provision.models.cpu.layers import Layer, Network

PLANNED = 0.8


class Catalogue(NamedTuple):
    """Networks on a CPU as arrays; the layers of all networks stand one behind the other.

    Attributes
    ----------
    versions
        VERSION by plane and layer. Planes are LEVELS; the last one has the versions fastest alone.
    until_s
        Planned time of all layers before each, (planes, cores, layers + 1).
    target_s
        Sum of the targets of all layers before each, (layers + 1).
    first
        First layer of every network, and the number of layers.
    average
        Average cores by plane and network.
    slowdown
        By level: the mean time of layers of their fastest version over that alone.
    qos_s
        By network.
    kept
        Number of versions by layer.
    """

    versions: NDArray[np.void]
    until_s: Floats
    target_s: Floats
    first: Ints
    average: Floats
    slowdown: Floats
    qos_s: Floats
    kept: Ints


def catalogue(
    networks: Sequence[Network], cpu: Cpu = PUBLISHED, planned: float = PLANNED, most: int = MOST_VERSIONS
) -> Catalogue:
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
    """Sums of all before each along the last axis, and of all."""
    return np.concatenate([np.zeros_like(parts[..., :1]), np.cumsum(parts, axis=-1)], axis=-1)


@cache
def _alone(layer: Layer, cpu: Cpu) -> tuple[NDArray[np.void], Floats]:
    """The version fastest alone and its times by cores."""
    version = fastest_alone(layer, cpu)
    return version, core_scaling(version, 0.0, cpu)[0]


@cache
def _layer(
    layer: Layer, target_s: float, cores: int, cpu: Cpu, most: int
) -> tuple[NDArray[np.void], Floats, int, Floats]:
    """Of one layer: version by plane, times (planes, cores), number of versions, slowdown by level."""
    versions, (alone, alone_s) = versions_of(layer, target_s, cores, cpu, most), _alone(layer, cpu)
    chosen, times_s = zip(*(_best(versions, level, target_s, cpu) for level in LEVELS), strict=True)
    planes = np.concatenate([versions[list(chosen)], alone])
    pressed_s = levels_s(alone, cores, cpu)[:, 0]
    return planes, np.stack([*times_s, alone_s]), len(versions), pressed_s / pressed_s[0]


def _best(versions: NDArray[np.void], level: float, target_s: float, cpu: Cpu) -> tuple[int, Floats]:
    """Which version is for a level, and its times by cores."""
    times_s = core_scaling(versions, level, cpu)
    enough = times_s <= max(target_s, SLACK * times_s.min())
    cores = np.where(enough.any(axis=1), enough.argmax(axis=1), cpu.cores)
    ordered = np.lexsort((times_s[np.arange(len(versions)), np.minimum(cores, cpu.cores - 1)], cores))
    return ordered[0], times_s[ordered[0]]

"""The profiles of models that VELTAIR's scheduler uses: versions, times, targets (ASPLOS 2022, section 4).

The following is guessed. For an interference level, the version is chosen that keeps the layer's target with the fewest
cores; among equals, the fastest. Without adaptive compilation a layer has the version that is fastest alone on all
cores, as TVM's tuner would return it, and is planned as if alone. All schedulers plan to run a query in 80 % of its QoS
time; the rest is for waiting and interference.

The analytical CPU model can be fitted to measured layer times (``fit_cpu``), and its predictions compared with them
(``compared``). A layer is predicted to take the time of its fastest tiling in the model of `provision.models.cpu.cpu`.
Three constants of a core are found by least squares on the logarithms of the times of the measured versions that are
fastest alone: operations and bytes per second, and the time to start a layer. A measured layer runs again and again and
finds its weights in a cache; therefore DRAM counts as fast as L3, and L3 is taken to hold all blocks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from provision.heuristics.veltair.versions import (
    GRAIN,
    LEVELS,
    MOST_VERSIONS,
    SLACK,
    candidates_of,
    fastest_alone,
    layer_targets_s,
    least_cores,
    levels_s,
    versions_of,
)
from provision.models.base.arrays import Floats, Ints
from provision.models.cpu.cpu import PUBLISHED, Cpu, core_scaling
from provision.models.cpu.layers import BERT_TOKENS, MEASURED_TOKENS, Layer, Network, networks
from provision.models.cpu.times import LayerTimes

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


COMPARED = ("network", "layer", "version", "cores", "measured_ms", "predicted_ms", "error")
CONSTANTS = ("core_flops", "core_l3_bps", "fork_s")
REFERENCE = "resnet50"
BALANCE = 0.5
"""The start value of the fit for the bytes per operation that a core reads."""
STEP = 0.01
"""The relative step of numerical derivatives; it is large, since times jump where the fastest tiling changes."""
UNIT = PUBLISHED._replace(core_flops=1.0, efficiency=1.0, live_bytes=np.inf, join_s=0.0, crowded=1.0)

Tilings = dict[tuple[str, str], NDArray[np.void]]
"""The candidate versions by (network, layer)."""


def cpu_of(constants: Iterable[float], cores: int) -> Cpu:
    """A Cpu with ``cores`` cores and these CONSTANTS, without losses to other tenants or to joining cores."""
    cpu = UNIT._replace(cores=cores, **dict(zip(CONSTANTS, constants, strict=True)))
    return cpu._replace(core_dram_bps=cpu.core_l3_bps, dram_bps=cores * cpu.core_l3_bps)


def fit_cpu(times: LayerTimes) -> Cpu:
    """The Cpu that fits LayerTimes."""
    rows, tilings = times.fastest_alone, _tilings(times)
    took_s = np.array([row.median_ms for row in rows]) / 1e3
    most_flops = max(times.shapes[row.network][row.layer].flops / row.median_ms / row.cores for row in rows) * 1e3

    def errors(logs: Floats) -> Floats:
        return np.log(_predicted_s(times, tilings, cpu_of(np.exp(logs), times.machine.cores)) / took_s)

    start = np.log([most_flops, BALANCE * most_flops, took_s.min() / 2])
    return cpu_of(np.exp(least_squares(errors, start, diff_step=[STEP]).x).tolist(), times.machine.cores)


def _tilings(times: LayerTimes) -> Tilings:
    """The candidate versions of the measured layers, by (network, layer); their times are in operations instead of
    seconds.
    """
    return {(row.network, row.layer): candidates_of(times.shapes[row.network][row.layer], UNIT)
            for row in times.fastest_alone}


def _predicted_s(times: LayerTimes, tilings: Tilings, cpu: Cpu) -> Floats:
    """The predicted times, in s, of the layers in ``times.fastest_alone``."""
    scaled = {}
    for key, candidates in tilings.items():
        timed = candidates.copy()
        timed["chunk_s"] /= cpu.core_flops
        scaled[key] = core_scaling(timed, 0.0, cpu).min(axis=0)
    return np.array([scaled[row.network, row.layer][row.cores - 1] for row in times.fastest_alone])


def compared(times: LayerTimes, cpu: Cpu) -> list[dict[str, Any]]:
    """The measured and predicted times of layers in the versions that are fastest alone, as dictionaries with the keys
    COMPARED.
    """
    predicted_s = _predicted_s(times, _tilings(times), cpu)
    return [
        dict(zip(COMPARED, (*row[:4], row.median_ms, ms, ms / row.median_ms - 1), strict=True))
        for row, ms in zip(times.fastest_alone, (1e3 * predicted_s).tolist(), strict=True)
    ]


def by_network(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of ``compared`` summarised by network and number of cores: ms of a whole query, mean and 95th percentile
    of absolute errors. The ms are None for networks of which some layer was not measured.
    """
    found = []
    for name, cores in dict.fromkeys((row["network"], row["cores"]) for row in rows):
        mine = {row["layer"]: row for row in rows if (row["network"], row["cores"]) == (name, cores)}
        often, errors = Counter(networks(MEASURED_TOKENS)[name].firsts), np.abs([row["error"] for row in mine.values()])
        measured_ms, predicted_ms = (
            sum(mine[layer][column] * often[layer] for layer in often) if set(often) == set(mine) else None
            for column in ("measured_ms", "predicted_ms")
        )
        found.append({"network": name, "cores": cores, "shapes": len(mine),
                      "measured_ms": measured_ms, "predicted_ms": predicted_ms,
                      "mean_error": float(errors.mean()), "p95_error": float(np.percentile(errors, 95))})
    return found


def measured_networks(times: LayerTimes, bert_tokens: int = BERT_TOKENS) -> dict[str, Network]:
    """The shipped networks, by name, with layers whose effort was measured on one core; BERT has ``bert_tokens``
    tokens. Efforts are relative to the mean effort of REFERENCE, weighted by operations, since the efficiency of the
    modelled CPU is fitted to this network.
    """
    rows = compared(times, fit_cpu(times))
    ratio = {(row["network"], row["layer"]): 1 / (1 + row["error"]) for row in rows if row["cores"] == 1}
    served = networks(bert_tokens)
    efforts = {name: [ratio.get((name, first), 1.0) for first in network.firsts]
               for name, network in served.items()}
    mean = np.average(efforts[REFERENCE], weights=[layer.flops for layer in served[REFERENCE].layers])
    return {
        name: network._replace(layers=tuple(
            layer._replace(effort=float(effort / mean))
            for layer, effort in zip(network.layers, efforts[name], strict=True)
        ))
        for name, network in served.items()
    }

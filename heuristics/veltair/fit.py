"""Fits the analytical CPU model to measured layer times, and compares predicted with measured times. A layer is
predicted to take the time of its fastest tiling in the model of `provision.models.cpu.cpu`. Three constants of a core
are found by least squares on the logarithms of the times of the measured versions that are fastest alone: operations
and bytes per second, and the time to start a layer. A measured layer runs again and again and finds its weights in a
cache; therefore DRAM counts as fast as L3, and L3 is taken to hold all blocks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from provision.heuristics.veltair.versions import candidates_of
from provision.models.base.arrays import Floats
from provision.models.cpu.cpu import PUBLISHED, Cpu, core_scaling
from provision.models.cpu.layers import BERT_TOKENS, MEASURED_TOKENS, Network, networks
from provision.models.cpu.times import LayerTimes

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

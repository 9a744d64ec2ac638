"""An analytical model of the time of layers on a shared many-core CPU; only a layer's ``effort`` is measured.

A layer runs in one of several *versions*. A version divides the matrix product into tiles of rows x columns outputs
and, if ``split`` is above 1, the sums of each output into parts. Each part of a tile is a *chunk* of work for one core.
The *block* of a chunk is the memory that it uses: its panels of both matrices, and its outputs. The model is a roofline
with the scaling over cores and the footprint of blocks in the L3 cache:

- Compute: chunks run in waves over the cores; partial tiles are padded to whole tiles of the micro-kernel.
- L3: a chunk reads its panels once if its block stays in cache. The part of the block that does not stay is read again,
  from DRAM, in every step of the micro-kernel. Large blocks thus read less if they stay and lose more if they do not.
  L2 is not modelled separately.
- DRAM: weights are always read from DRAM, since other layers and tenants have run in between; so is the part of blocks
  that did not stay in cache. Transfers from DRAM overlap with the rest of the work, and the longer of the two times
  counts.
- Every layer forks and joins its cores. A layer on all cores shares one core with the dispatcher.

Tenants share L3 and DRAM. L3 is divided by frequency of access (the FOA model of Chandra et al., HPCA 2005). When the
tenants together need more than DRAM's bandwidth, every transfer takes longer by the same factor.

The CPU is VELTAIR's testbed (section 5.1): Threadripper 3990X, 64 cores at 2.9 GHz, AVX2, 256 MB of L3 taken as one
pool, DDR4-3200 on four channels. Two numbers are assumed: DRAM reaches 80 % of its theoretical bandwidth, and 14 % of
the L3 hold blocks that are still in use (Khan et al., MICRO 2010, find 86 % of a last-level cache dead on average).
``growth_s`` is the paper's mean overhead of taking more cores for a running layer (220 us, section 3.2).

VELTAIR's public program contains the times of every layer of ResNet-50 and GoogLeNet on 8, 16, ... 64 cores. PUBLISHED
is fitted to ResNet-50's times on up to 56 cores: efficiency, bandwidth to L3 and the join overhead (the fork overhead
is set); ``crowded`` is a further factor on times with all 64 cores. ``benchmarks/papers/fit_veltair.py`` fits these
constants and judges them on GoogLeNet. CALIBRATED is not fitted to times: its three constants were chosen so that
VELTAIR's gains come out as in the paper.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.base.arrays import Floats
from provision.models.base.compiled import compiled, inner
from provision.models.cpu.layers import BYTES, Layer

TILE_ROWS, TILE_COLUMNS = 6, 16
"""The rows and columns of outputs that the micro-kernel computes at once: as many as AVX2's registers hold."""


class Cpu(NamedTuple):
    """The coefficients of a CPU; times are in s, sizes in bytes, rates in 1/s.

    Attributes
    ----------
    cores, core_flops
        The number of cores, and the peak rate of a core in floating-point operations/s.
    efficiency
        The fraction of the peak that the micro-kernel reaches.
    live_bytes
        The part of L3 that holds blocks in use.
    core_l3_bps, core_dram_bps, dram_bps
        The bandwidth of one core to L3, of one core to DRAM, and of DRAM in total, in bytes/s.
    fork_s, join_s
        The overhead of a layer, and the overhead of every core on which it runs.
    growth_s
        The overhead of giving a running layer more cores.
    crowded
        The factor on the time of a layer that runs on all cores.
    """

    cores: int
    core_flops: float
    efficiency: float
    live_bytes: float
    core_l3_bps: float
    core_dram_bps: float
    dram_bps: float
    fork_s: float
    join_s: float
    growth_s: float
    crowded: float


PUBLISHED = Cpu(
    cores=64, core_flops=2.9e9 * 32, efficiency=0.586, live_bytes=0.14 * 256 * 1024**2,
    core_l3_bps=10.6e9, core_dram_bps=20e9, dram_bps=0.8 * 102.4e9,
    fork_s=1e-6, join_s=0.06e-6, growth_s=220e-6, crowded=1.93,
)
CALIBRATED = PUBLISHED._replace(efficiency=0.95, core_l3_bps=11.6e9, fork_s=5e-6, join_s=0.6e-6, crowded=1.0)
CPUS = {"published": PUBLISHED, "calibrated": CALIBRATED}

VERSION = np.dtype([(name, np.float64) for name in (
    "chunks", "chunk_s", "block_bytes", "panel_bytes", "again_bytes", "weight_bytes",
)])
"""The record of a version of a layer. All chunks together read ``panel_bytes`` if all blocks stay in cache, and
``again_bytes`` if none does.
"""


def version(layer: Layer, rows: int, columns: int, split: int, cpu: Cpu) -> NDArray[np.void]:
    """The record (dtype VERSION) of a layer computed in tiles of ``rows`` x ``columns`` outputs.

    The sum behind each output is cut into ``split`` parts.
    """
    depth, down, across = -(-layer.k // split), -(-layer.m // rows), -(-layer.n // columns)
    padded = -(-rows // TILE_ROWS) * TILE_ROWS * -(-columns // TILE_COLUMNS) * TILE_COLUMNS
    left, right = BYTES * layer.inputs, BYTES * layer.batch * layer.n * layer.k
    outputs = BYTES * layer.batch * layer.m * layer.n * split
    chunks = down * across * layer.batch * split
    return np.array((
        chunks,
        layer.effort * 2 * padded * depth / (cpu.core_flops * cpu.efficiency),
        (left * across + right * down + outputs) / chunks,
        left * across + right * down + outputs,
        left * across + right * -(-layer.m // min(rows, TILE_ROWS)) + outputs,
        BYTES * layer.weight_count,
    ), VERSION)


@inner
def stays(version: Any, cores: int, l3_share: float, cpu: Cpu) -> float:
    """The fraction of a version's blocks that stays in cache, on ``cores`` cores and the fraction ``l3_share`` of
    L3."""
    return min(1.0, l3_share * cpu.live_bytes / (min(cores, version.chunks) * version.block_bytes))


@inner
def accesses(version: Any, stay: float) -> float:
    """The bytes that a version reads from or through L3 if the fraction ``stay`` of its blocks stays in cache."""
    return stay * version.panel_bytes + (1 - stay) * version.again_bytes


@inner
def misses(version: Any, stay: float) -> float:
    """The bytes that a version reads from DRAM if the fraction ``stay`` of its blocks stays in cache."""
    return version.weight_bytes + (1 - stay) * version.again_bytes


@inner
def busy_s(version: Any, cores: int, stay: float, cpu: Cpu) -> float:
    """The time in which a version computes and reads from L3, in s."""
    l3_s = accesses(version, stay) / (min(cores, version.chunks) * cpu.core_l3_bps)
    return np.ceil(version.chunks / cores) * version.chunk_s + l3_s


@inner
def dram_s(version: Any, cores: int, stay: float, cpu: Cpu) -> float:
    """The time in which a version reads from DRAM while no other tenant uses DRAM, in s."""
    return misses(version, stay) / min(min(cores, version.chunks) * cpu.core_dram_bps, cpu.dram_bps)


@inner
def took_s(busy_s: float, dram_s: float, cores: int, cpu: Cpu) -> float:
    """The time of a layer in s: the longer of its times for computing and for DRAM, plus the overhead of its cores."""
    taken_s = max(busy_s, dram_s) + cpu.fork_s + cores * cpu.join_s
    return taken_s * cpu.crowded if cores == cpu.cores else taken_s


@compiled
def alone_s(version: Any, cores: int, cpu: Cpu) -> float:
    """The time of a version that has the CPU to itself, in s."""
    stay = stays(version, cores, 1.0, cpu)
    return took_s(busy_s(version, cores, stay, cpu), dram_s(version, cores, stay, cpu), cores, cpu)


@inner
def stretch(busy_s: Floats, dram_s: Floats, miss_bytes: Floats, cpu: Cpu) -> float:
    """The factor, at least 1, by which all transfers must take longer so that DRAM's bandwidth is not exceeded.

    Tenant j transfers ``miss_bytes[j]`` in every max(``busy_s[j]``, factor * ``dram_s[j]``) seconds. The factor is
    found by bisection.
    """
    low, high = 1.0, 1.0
    for at in range(len(dram_s)):
        if dram_s[at] > 0:
            high += miss_bytes[at] / dram_s[at] / cpu.dram_bps
    for _ in range(30):
        if np.sum(miss_bytes / np.maximum(busy_s, low * dram_s)) <= cpu.dram_bps:
            break
        middle = (low + high) / 2
        if np.sum(miss_bytes / np.maximum(busy_s, middle * dram_s)) > cpu.dram_bps:
            low = middle
        else:
            high = middle
    return low


@compiled
def pressed(version: Any, cores: int, level: float, cpu: Cpu) -> tuple[float, float, float]:
    """(time in s, bytes from L3, bytes from DRAM) of a version while other tenants load the CPU.

    The others are modelled as one tenant that reads L3 and DRAM on all cores for the fraction ``level`` of the time.
    """
    own_bps = accesses(version, 1.0) / alone_s(version, cores, cpu)
    stay = stays(version, cores, own_bps / (own_bps + level * cpu.cores * cpu.core_l3_bps), cpu)
    busy = np.array([busy_s(version, cores, stay, cpu), 1.0])
    dram = np.array([dram_s(version, cores, stay, cpu), level])
    miss_bytes = misses(version, stay)
    factor = stretch(busy, dram, np.array([miss_bytes, level * cpu.dram_bps]), cpu)
    return took_s(busy[0], factor * dram[0], cores, cpu), accesses(version, stay), miss_bytes


@compiled
def core_scaling(versions: NDArray[np.void], level: float, cpu: Cpu) -> Floats:
    """(versions, cores), the times in s of versions on 1, 2, ... cores while other tenants load the CPU at ``level``.
    """
    times = np.empty((len(versions), cpu.cores))
    for at in range(len(versions)):
        for cores in range(1, cpu.cores + 1):
            times[at, cores - 1] = pressed(versions[at], cores, level, cpu)[0]
    return times

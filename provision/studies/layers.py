"""Runs a layer with PyTorch on a CPU, in the versions between which PyTorch lets the caller choose.

VELTAIR's versions are loop nests made by its compiler. PyTorch's libraries do not let a caller choose loop nests, but
these versions:

- ``whole``: the operator as it is usually called, oneDNN's convolution or MKL's product;
- ``channels-last``: the same convolution on data in PyTorch's format channels_last (all channels of a pixel together);
- ``im2col``: oneDNN is switched off, so that the input is unrolled into a matrix and multiplied: more bytes for the
  same work;
- ``quarters``: a quarter of the filters, columns or heads at a time, one after the other. Smaller blocks of weights and
  outputs are in use at a time, and the input is read four times. This is the nearest to VELTAIR's choices of locality.

Parallelism is the number of threads, one per core.

Reads measured layer times, by shipped name or by path.

Describes the CPU of this machine, as Linux tells it.

Measures layers on a CPU: in every version, on 1, 2, ... cores, alone and beside a background load.

A process that is pinned to this number of cores repeats a layer after a warm-up; the result is the median time. The
influence of other programs is kept out as far as possible. On one core the CPU time of a repetition is measured. On
several cores a repetition is timed by the clock, and is ignored if the kernel took a core away meanwhile. If too few
repetitions remain, the layer has no result.

The background load has a separate core; therefore shared memory and caches slow a layer down, but no shared core does.
Since a layer is repeated without a pause, its weights are often still in a cache, and less is read from memory than if
other layers ran in between.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.instances.files.files import FilePath, load, validate
from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.cpu.layers import Layer, Network
from provision.models.cpu.times import LayerTime, LayerTimes, MeasuredCpu, Streaming
from provision.profiling.work import background

if TYPE_CHECKING:
    from torch import torch

WHOLE, CHANNELS_LAST, IM2COL, QUARTERS = "whole", "channels-last", "im2col", "quarters"
PARTS = 4
CPU_INFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS_KIB = {"K": 1, "M": 1024, "G": 1024**2}
WARM_UP = 3
LEAST_REPETITIONS = 5
PATIENCE_S = 1.0
"""Seconds after which a layer is given up if other programs keep disturbing its repetitions."""
QUARTILES = (25, 50, 75)

Job = tuple[str, Layer, str]
"""The name of a network, one of its layers, and the version in which the layer is measured."""


def versions_of(layer: Layer) -> tuple[str, ...]:
    """The names of the versions of a layer."""
    if layer.depthwise:
        return WHOLE, CHANNELS_LAST
    return (WHOLE, CHANNELS_LAST, IM2COL, QUARTERS) if layer.kernel else (WHOLE, QUARTERS)


def work(layer: Layer, version: str) -> Callable[[], object]:
    """A function that runs a layer once on random numbers and returns its outputs. Also switches oneDNN on or off."""
    from torch.backends import mkldnn

    mkldnn.enabled = version != IM2COL
    return _convolution(layer, version) if layer.kernel else _product(layer, version)


def _convolution(layer: Layer, version: str) -> Callable[[], object]:
    import torch

    size, groups = round(layer.m**0.5) * layer.stride, layer.channels if layer.depthwise else 1
    form = torch.channels_last if version == CHANNELS_LAST else torch.contiguous_format
    filters = layer.channels if layer.depthwise else layer.n
    weights = torch.randn(filters, layer.channels // groups, layer.kernel, layer.kernel).to(memory_format=form)
    data = torch.randn(1, layer.channels, size, size).to(memory_format=form)
    options = {"stride": layer.stride, "padding": layer.kernel // 2, "groups": groups}
    parts = _parts(weights, version)
    return lambda: [torch.conv2d(data, part, **options) for part in parts]


def _product(layer: Layer, version: str) -> Callable[[], object]:
    """A function that multiplies vectors by weights, or activations by activations head by head."""
    import torch

    if layer.weights:
        data, parts = torch.randn(layer.m, layer.k), _parts(torch.randn(layer.n, layer.k), version)
        return lambda: [torch.nn.functional.linear(data, part) for part in parts]
    left, right = torch.randn(layer.batch, layer.m, layer.k), torch.randn(layer.batch, layer.k, layer.n)
    heads = list(zip(_parts(left, version), _parts(right, version), strict=True))
    return lambda: [torch.bmm(*head) for head in heads]


def _parts(tensor: torch.Tensor, version: str) -> Sequence[torch.Tensor]:
    return tensor.chunk(PARTS) if version == QUARTERS else (tensor,)


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use. Raises InputError if the operating system cannot pin
    processes to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise InputError(f"profile-layers: {platform.system()} cannot pin processes to cores; run it on Linux")
    return sorted(os.sched_getaffinity(0))


def measured_cpu() -> MeasuredCpu:
    """Describe the CPU of this machine. Raises InputError if PyTorch is not installed, or the operating system cannot
    pin processes to cores.
    """
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise InputError("profile-layers: PyTorch is not installed; pip install 'gpu-provision[profile]'") from None
    names = re.findall(r"model name\s*: (.+)", CPU_INFO.read_text()) if CPU_INFO.exists() else []
    return MeasuredCpu(
        cpu=(names or [platform.machine()])[0], cores=len(usable_cores()), l2_mib=_cache_mib(2), l3_mib=_cache_mib(3),
        torch=torch,
    )


def _cache_mib(level: int) -> float | None:
    """The size in MiB of the first core's cache of a level; None if Linux does not tell it."""
    for cache in sorted(CACHES.glob("index*")):
        if (cache / "level").read_text().strip() == str(level):
            size = (cache / "size").read_text().strip()
            return int(size[:-1]) * UNITS_KIB[size[-1]] / 1024
    return None


def read_layer_times(name_or_path: FilePath) -> LayerTimes:
    """Read LayerTimes from the file of this name if it exists, else the shipped layer times of this name. Raises
    InputError if there is neither, or the file cannot be used.
    """
    name = os.fspath(name_or_path)
    if os.path.exists(name):
        return validate(LayerTimes, load(name), name)
    if name not in shipped_layer_times():
        raise InputError(f"{name}: no such file, and no shipped layer times; there are "
                         f"{', '.join(shipped_layer_times())}")
    with as_file(_folder() / f"{name}.yaml") as path:
        return validate(LayerTimes, load(path), path)


def shipped_layer_times() -> list[str]:
    """Names of the shipped layer times, sorted."""
    return sorted(path.name.removesuffix(".yaml") for path in _folder().iterdir())


def _folder() -> Traversable:
    return files("provision.models.cpu") / "data"


class Setting(NamedTuple):
    """The number of cores on which layers run, and the level of the background load, from 0 to 1."""

    cores: int
    level: float


def settings(cores: Iterable[int], levels: Iterable[float], usable: int) -> list[Setting]:
    """All pairs of a number of cores and a level for which enough cores are usable; a load takes one core more."""
    return [Setting(number, level) for level in levels for number in cores if number + (level > 0) <= usable]


def jobs(networks: Iterable[Network]) -> list[Job]:
    """Every job of a setting: (network's name, Layer, version). Layers of the same shape occur once."""
    return [
        (network.name, layer, version)
        for network in networks
        for layer, first in zip(network.layers, network.firsts, strict=True)
        if layer.name == first
        for version in versions_of(layer)
    ]


def measure(jobs: Iterable[Job], setting: Setting, usable: Sequence[int], l3_mib: float | None, seconds: float,
            advance: Callable[[int], None]) -> tuple[list[LayerTime], Streaming | None]:
    """Measure the jobs in one setting.

    Parameters
    ----------
    jobs
        The jobs, as ``jobs`` returns them.
    setting
        The number of cores, and the level of the background load.
    usable
        Numbers of the cores that may be used; the background load gets the last core.
    l3_mib
        Size of the L3 cache; None if it is not known.
    seconds
        How long a layer is repeated; it is repeated at least LEAST_REPETITIONS times.
    advance
        Called with 1 after every job.

    Returns
    -------
    list of LayerTime without the jobs that other programs kept disturbing, and the Streaming (None at level 0)

    Raises
    ------
    InputError
        If the measuring process ends early.
    """
    rows, level = [], setting.level
    with background(level, usable[-1], l3_mib) as streamed_gbps, _measurer(usable[: setting.cores], seconds) as ask:
        for network, layer, version in jobs:
            if found := ask(layer, version):
                rows.append(LayerTime(network, layer.name, version, *setting, *found))
            advance(1)
        return rows, Streaming(level=level, gbps=round(streamed_gbps(), 2)) if streamed_gbps else None


@contextmanager
def _measurer(cores: Sequence[int], seconds: float) -> Iterator[Callable[[Layer, str], tuple[float, float] | None]]:
    """Start a process pinned to cores; yield a function that makes it measure a layer in a version."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, cores, seconds), daemon=True)
    process.start()
    there.close()

    def ask(layer: Layer, version: str) -> tuple[float, float] | None:
        try:
            here.send((layer, version))
            return here.recv()
        except (EOFError, OSError):
            raise InputError("profile-layers: the measuring process ended early; see what it printed") from None

    try:
        yield ask
    finally:
        process.kill()
        process.join()


def _serve(asked: Connection, cores: Sequence[int], seconds: float) -> None:
    """Run in the measuring process: measure the layers that are asked for, until the asking process closes the
    connection.
    """
    os.sched_setaffinity(0, cores)
    import torch

    torch.set_num_threads(len(cores))
    with suppress(EOFError):
        while True:
            layer, version = asked.recv()
            asked.send(_timed(layer, version, seconds))


def _timed(layer: Layer, version: str, seconds: float) -> tuple[float, float] | None:
    """The median time in ms, and the distance of the quartiles relative to it; None if too few repetitions were
    undisturbed.
    """
    import torch

    with torch.inference_mode():
        run = work(layer, version)
        for _ in range(WARM_UP):
            run()
        took_s = _repeated(run, seconds, torch.get_num_threads())
    if len(took_s) < LEAST_REPETITIONS:
        return None
    low_s, median_s, high_s = np.percentile(took_s, QUARTILES)
    return float(f"{1e3 * median_s:.4g}"), round(float((high_s - low_s) / median_s), 2)


def _repeated(run: Callable[[], object], seconds: float, threads: int) -> list[float]:
    """The times in s of the repetitions that were not disturbed."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    took_s: list[float] = []
    watch = Stopwatch()
    while (passed_s := watch.elapsed_s) < PATIENCE_S:
        if passed_s > seconds and len(took_s) >= LEAST_REPETITIONS:
            break
        taken, start_s = _taken_away(), clock()
        run()
        end_s = clock()
        if threads == 1 or _taken_away() == taken:
            took_s.append(end_s - start_s)
    return took_s


def _taken_away() -> int:
    """How often the kernel has taken a core from a thread of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

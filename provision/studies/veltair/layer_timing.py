"""Measures layers on a CPU: in every version, on 1, 2, ... cores, alone and beside a background load.

A process that is pinned to this number of cores repeats a layer after a warm-up; the result is the median time. The
influence of other programs is kept out as far as possible. On one core the CPU time of a repetition is measured. On
several cores a repetition is timed by the clock, and is ignored if the kernel took a core away meanwhile. If too few
repetitions remain, the layer has no result.

The background load has a separate core; therefore shared memory and caches slow a layer down, but no shared core does.
Since a layer is repeated without a pause, its weights are often still in a cache, and less is read from memory than if
other layers ran in between.
"""

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np

from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.cpu.layers import Layer, Network
from provision.models.cpu.times import LayerTime, Streaming
from provision.profiling.work import background
from provision.studies.veltair.layer_work import versions_of, work

WARM_UP = 3
LEAST_REPETITIONS = 5
PATIENCE_S = 1.0
"""Seconds after which a layer is given up if other programs keep disturbing its repetitions."""
QUARTILES = (25, 50, 75)

Job = tuple[str, Layer, str]
"""The name of a network, one of its layers, and the version in which the layer is measured."""


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

"""Measures operating points: processes that run batches back to back, alone or beside a neighbour.

All processes load the model, warm up, wait for each other, and then run for the given time; only the window in which
all of them run counts. A batch is timed by the clock, from submission to completion, and on the GPU by CUDA events.
Measurements become rows of a CSV file, and those of replicas alone on their slice performance data.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from queue import Empty
from statistics import median
from typing import Any

from provision.instances.files.files import validate
from provision.models.base.errors import InputError
from provision.models.performance.measured_segments import MeasuredSegments
from provision.profiling.work import Device, load

COLUMNS = (
    "gpu", "profile", "sm_percent", "model", "batch", "processes", "neighbour", "neighbour_batch",
    "latency_ms", "gpu_ms", "throughput_rps", "batches",
)


def row(device: Device, point: Point, measured: Measured | None) -> tuple[object, ...]:
    """A measurement as a row of COLUMNS; if memory ran out, the throughput is 0."""
    beside, beside_batch = point.neighbour or ("", "")
    found = astuple(measured) if measured else (0, "", 0, 0)
    place = (device.gpu, device.profile, device.sm_percent)
    return (*place, point.model, point.batch, point.processes, beside, beside_batch, *found)


def segments(rows: Iterable[Sequence[Any]], name: str, source: str) -> MeasuredSegments:
    """Make measured segments from the rows that were measured alone on a slice with all of its SMs. Raises InputError
    if there are no such rows, or they are of several GPU types.
    """
    alone = [one for one in (dict(zip(COLUMNS, cells, strict=True)) for cells in rows)
             if not one["neighbour"] and one["sm_percent"] == 100 and one["throughput_rps"] > 0]
    gpus = {one["gpu"] for one in alone}
    if len(gpus) != 1:
        raise InputError("profile: nothing was measured alone with all SMs, so there is no table to write")
    models: dict[str, dict[str, list[object]]] = {}
    for one in alone:
        point = (one["profile"], one["batch"], one["processes"], one["throughput_rps"], one["latency_ms"])
        models.setdefault(one["model"].rpartition(":")[2], {"points": []})["points"].append(point)
    content = {"version": 1, "name": name, "kind": "measured-segments", "gpu": gpus.pop(), "source": source,
               "models": models}
    return validate(MeasuredSegments, content, "profile")


Timing = tuple[float, float, float | None]
"""Start and end of a batch by the clock in s, and its time on the GPU in ms (None if CUDA events did not measure it).
"""

WARM_UP_S = 1.0
PATIENCE_S = 300
"""The most seconds that loading and compiling may take."""


@dataclass(frozen=True)
class Point:
    """One operating point to measure; ``neighbour`` is another model with its batch size, or None."""

    model: str
    batch: int
    processes: int = 1
    neighbour: tuple[str, int] | None = None


@dataclass(frozen=True)
class Measured:
    """The measurement of a point: median times of a batch by the clock and on the GPU (None on a CPU), throughput, and
    the
    number of batches.
    """

    latency_ms: float
    gpu_ms: float | None
    throughput_rps: float
    batches: int


def measure(point: Point, device: str, seconds: float) -> Measured | None:
    """Measure one point.

    Parameters
    ----------
    point
        The operating point.
    device
        ``cuda`` (the device of the environment: CUDA_VISIBLE_DEVICES, CUDA_MPS_*) or ``cpu``.
    seconds
        The time for which all processes run together.

    Returns
    -------
    Measured, or None if a process ran out of memory.

    Raises
    ------
    InputError
        If a model cannot be loaded, or a process ends early.
    """
    context = multiprocessing.get_context("spawn")
    jobs = [(point.model, point.batch)] * point.processes
    if point.neighbour is not None:
        jobs.append(point.neighbour)
    barrier, results = context.Barrier(len(jobs)), context.Queue()
    workers = [
        context.Process(target=_work, args=(number, *job, device, seconds, barrier, results), daemon=True)
        for number, job in enumerate(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        found = dict(_collected(workers, results, seconds))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    everyone = {number: times for number, times in found.items() if times is not None}
    if len(everyone) < len(found):
        return None
    return _summary(point, [everyone[number] for number in range(point.processes)], everyone.values())


def _collected(workers: Sequence[BaseProcess], results: Any,
               seconds: float) -> Iterator[tuple[int, list[Timing] | None]]:
    """Yield each worker's number and its Timings, one per batch; all are None once memory ran out. Raises InputError if
    a worker fails.
    """
    until = time.monotonic() + PATIENCE_S + seconds
    left = len(workers)
    while left:
        try:
            number, times, problem = results.get(timeout=1)
        except Empty:
            if time.monotonic() > until or any(worker.exitcode for worker in workers):
                raise InputError("profile: a measuring process ended before its time; see what it printed") from None
            continue
        if problem:
            raise InputError(problem)
        left = 0 if times is None else left - 1
        yield number, times
        if times is None:
            yield from ((other, None) for other in range(len(workers)))


def _work(number: int, model: str, batch: int, device: str, seconds: float, barrier: Barrier, results: Any) -> None:
    """Run in a measuring process: load the model, warm up, wait for the others, run, and report the times."""
    try:
        run, timed = load(model, device, batch), _events if device == "cuda" else _clock
        _repeat(run, timed, WARM_UP_S)
        barrier.wait(PATIENCE_S)
        results.put((number, _repeat(run, timed, seconds), None))
    except InputError as error:
        results.put((number, None, str(error)))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "out of memory" not in str(error):
            results.put((number, None, str(InputError(f"model {model}: {error or type(error).__name__}"))))
        else:
            results.put((number, None, None))


def _repeat(run: Callable[[], object], timed: Callable[[Callable[[], object]], Timing], seconds: float) -> list[Timing]:
    """The Timing of every batch, run one right after the other for some seconds; at least one batch."""
    times: list[Timing] = []
    until = time.monotonic() + seconds
    while not times or times[-1][1] < until:
        times.append(timed(run))
    return times


def _clock(run: Callable[[], object]) -> Timing:
    start = time.monotonic()
    run()
    return start, time.monotonic(), None


def _events(run: Callable[[], object]) -> Timing:
    """Run a batch; return its start and end by the clock, and the time in ms between two CUDA events around it."""
    from torch import cuda

    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start = time.monotonic()
    first.record()
    run()
    last.record()
    last.synchronize()
    return start, time.monotonic(), first.elapsed_time(last)


def _summary(point: Point, mine: Sequence[Sequence[Timing]], everyone: Collection[Sequence[Timing]]) -> Measured:
    """The medians and the throughput of the point's own processes, in the window in which all processes ran."""
    start, end = max(times[0][0] for times in everyone), min(times[-1][1] for times in everyone)
    inside = [[one for one in times if one[0] >= start and one[1] <= end] or times for times in mine]
    together = [one for times in inside for one in times]
    rates = [point.batch * len(times) / (times[-1][1] - times[0][0]) for times in inside]
    on_gpu = [one[2] for one in together if one[2] is not None]
    return Measured(
        latency_ms=1000 * median(last - first for first, last, _ in together),
        gpu_ms=median(on_gpu) if on_gpu else None,
        throughput_rps=sum(rates),
        batches=len(together),
    )

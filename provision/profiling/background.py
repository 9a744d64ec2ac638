"""Makes a background load of known strength: a process on one core that streams through memory for a fraction of the
time. It copies one half of a buffer to the other half. The buffer has twice the size of the L3 cache, so that the data
read is never in a cache.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.base.known import known

STEP_BYTES = 4 * 2**20
PATIENCE_S = 60
UNKNOWN_L3_MIB = 512


@contextmanager
def background(level: float, core: int, l3_mib: float | None) -> Iterator[Callable[[], float] | None]:
    """Stream on a core for the fraction ``level`` of the time; yield a function that returns the mean GB/s so far.

    Parameters
    ----------
    level
        From 0 to 1; at 0 there is no process, and None is yielded.
    core
        The number of the core.
    l3_mib
        Size of the L3 cache; None if it is not known.
    """
    if level == 0:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    copied, ready = context.Value("Q", 0), context.Event()
    half_bytes = int((l3_mib or UNKNOWN_L3_MIB) * 2**20)
    process = context.Process(target=_stream, args=(level, core, half_bytes, copied, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(PATIENCE_S):
            raise InputError("profile-layers: the background load did not start; see what it printed")
        before, watch = copied.value, Stopwatch()
        yield lambda: 2 * (copied.value - before) / watch.elapsed_s / 1e9
    finally:
        process.kill()
        process.join()


def _stream(level: float, core: int, half_bytes: int, copied: Any, ready: Event) -> None:
    """Run in the process of the load, until the process that started it ends."""
    os.sched_setaffinity(0, {core})
    source, target = np.ones(half_bytes, np.uint8), np.zeros(half_bytes, np.uint8)
    ready.set()
    while known(multiprocessing.parent_process()).is_alive():
        for at in range(0, half_bytes, STEP_BYTES):
            start_s = time.thread_time()
            target[at : at + STEP_BYTES] = source[at : at + STEP_BYTES]
            copied.value += min(STEP_BYTES, half_bytes - at)
            time.sleep((time.thread_time() - start_s) * (1 / level - 1))

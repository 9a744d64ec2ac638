"""Loads the work that is measured (torchvision's models, or any callable), and a background load on a core."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.base.known import known

IMAGE = (3, 224, 224)
LARGER = {"inception_v3": (3, 299, 299)}
"""The shapes of one input of those torchvision models whose input is not of the shape IMAGE. Models of other packages
are measured as callables.
"""


def load(name: str, device: str, batch: int) -> Callable[[], object]:
    """Return a function that runs one batch, and that returns when the work of the batch is submitted.

    Parameters
    ----------
    name
        ``torchvision:resnet50``, or ``package.module:factory``, where ``factory(device, batch)`` returns the function.
    device
        ``cuda`` or ``cpu``.
    batch
        The number of requests in the batch.

    Raises
    ------
    InputError
        If there is no such model, module or factory.
    """
    source, colon, what = name.partition(":")
    if not (source and colon and what):
        raise InputError(f"model {name!r}: write torchvision:resnet50 or package.module:factory")
    if source == "torchvision":
        return _torchvision(what, device, batch)
    try:
        factory = getattr(import_module(source), what)
    except (ImportError, AttributeError) as error:
        raise InputError(f"model {name!r}: cannot be loaded: {error}; is it on the Python path?") from None
    return factory(device, batch)


def _torchvision(name: str, device: str, batch: int) -> Callable[[], object]:
    """A torchvision classifier with random weights; it is as fast as one with trained weights."""
    try:
        import torch
        from torchvision import models
    except ImportError:
        raise InputError("torchvision is not installed; pip install 'gpu-provision[profile]'") from None
    if name not in models.list_models(module=models):
        raise InputError(f"model torchvision:{name}: torchvision has no such classifier")
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    model = models.get_model(name, weights=None, **options).eval().to(device)
    data = torch.randn(batch, *LARGER.get(name, IMAGE), device=device)

    def run() -> None:
        with torch.inference_mode():
            model(data)

    return run


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

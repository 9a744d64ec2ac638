"""The register of methods: everything that turns an instance into a plan, by name."""

import signal
import threading
from contextlib import contextmanager
from functools import cache
from importlib import import_module

from provision.models.base.errors import InputError

MODULES = (
    "solving.auto",
    "formulations.master.partition_counts",
    "formulations.master.solve",
    "formulations.master.patterns",
    "formulations.master.patterns_throughput",
    "formulations.master.mixed_slices",
    "heuristics.core.greedy",
    "heuristics.core.lns",
    "heuristics.parvagpu.parvagpu",
    "heuristics.mig_serving.fast",
    "heuristics.mig_serving.slow",
    "heuristics.mig_serving.paris",
    "heuristics.igniter.igniter",
    "formulations.master.gpulets_patterns",
    "heuristics.gpulets.gpulets",
    "heuristics.gpulets.ideal",
    "heuristics.gpulets.nexus",
    "heuristics.gpulets.gslice",
    "heuristics.igniter.gpulets_plus",
    "solving.self_tuning",
    "heuristics.inss.inss",
    "formulations.assignment.cpsat",
    "formulations.assignment.milp",
)
"""Imported, solvers and all, when methods are first asked for."""


@cache
def methods():
    """All methods by name, ours first."""
    with _undisturbed():
        modules = [import_module(f"provision.{name}") for name in MODULES]
    return {method.name: method for module in modules for method in module.METHODS}


@contextmanager
def _undisturbed():
    """Let Ctrl-C wait: in the midst of an import of compiled code it comes out as an ImportError."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = []
    before = signal.signal(signal.SIGINT, lambda *_: told.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if told:
        raise KeyboardInterrupt


def method(name):
    """The method of this name.

    Raises
    ------
    InputError
        If there is none; the message lists those there are.
    """
    try:
        return methods()[name]
    except KeyError:
        raise InputError(f"unknown method {name!r}; use one of {', '.join(methods())}") from None

"""The register of methods: everything that turns an instance into a plan, by name."""

import signal
import threading
from contextlib import contextmanager
from functools import cache
from importlib import import_module

from provision.models.errors import InputError

MODULES = (
    "auto",
    "formulations.partition_counts",
    "formulations.patterns",
    "formulations.patterns_throughput",
    "formulations.mixed_slices",
    "heuristics.greedy",
    "heuristics.lns",
    "heuristics.parvagpu",
    "heuristics.mig_serving",
    "heuristics.mig_serving_slow",
    "heuristics.paris",
    "heuristics.igniter",
    "formulations.gpulets_patterns",
    "heuristics.gpulets",
    "heuristics.gpulets_ideal",
    "heuristics.nexus",
    "heuristics.gslice",
    "heuristics.gpulets_plus",
    "self_tuning",
    "heuristics.inss",
    "formulations.assignment_cpsat",
    "formulations.assignment_milp",
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

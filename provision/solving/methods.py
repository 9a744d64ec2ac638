"""The register of methods: everything that turns an instance into a plan, by name."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from provision.models.base.errors import InputError
from provision.models.base.register import one_of
from provision.models.problem.method import Method

MODULES = (
    "solving.auto",
    "solving.master",
    "heuristics.core.greedy",
    "heuristics.core.lns",
    "heuristics.parvagpu.parvagpu",
    "heuristics.rivals.mig_serving",
    "heuristics.rivals.paris",
    "heuristics.igniter.igniter",
    "heuristics.gpulets.gpulets",
    "heuristics.gpulets.ideal",
    "heuristics.rivals.nexus",
    "heuristics.rivals.gslice",
    "heuristics.rivals.gpulets_plus",
    "heuristics.inss.bda_gpulet",
    "heuristics.inss.inss",
    "heuristics.rivals.inferno",
    "heuristics.rivals.melange",
    "formulations.assignment.cpsat",
    "formulations.assignment.milp",
)
"""The modules of methods. They are imported, with their solvers, on first use."""
PRESETS = {**dict.fromkeys(("patterns", "patterns-throughput", "gpulets-patterns", "mixed-slices"), "master"),
           "partition-counts": "auto"}
"""The names of former methods, with the method that replaces each."""
GROUP = "provision.methods"
"""The group of entry points by which other packages add methods. Each entry point names a ``Method``."""


@cache
def methods() -> dict[str, Method]:
    """All methods by name: first those of this package, then those of other packages."""
    return {one.name: one for one in _known()}


def _known() -> Iterator[Method]:
    """Yield all methods; a module is imported when its methods are reached."""
    for name in MODULES:
        with _undisturbed():
            module = import_module(f"provision.{name}")
        yield from module.METHODS
    yield from (entry.load() for entry in entry_points(group=GROUP))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay Ctrl-C until the block ends. During the import of compiled code it would appear as an ImportError."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: told.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if told:
        raise KeyboardInterrupt


@cache
def method(name: str) -> Method:
    """The method of this name. Only the modules up to its own are imported.

    Raises
    ------
    InputError
        If there is none. The message names a method of a similar name, and the command that lists all.
    """
    wanted = PRESETS.get(name, name)
    for one in _known():
        if one.name == wanted:
            return one
    raise InputError(f"unknown method {name!r}; {one_of(name, methods(), 'provision methods')}")

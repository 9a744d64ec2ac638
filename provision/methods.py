"""The register of methods: everything that turns an instance into a plan, by name."""

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
    modules = [import_module(f"provision.{name}") for name in MODULES]
    return {method.name: method for module in modules for method in module.METHODS}


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

"""The register of methods: everything that turns an instance into a plan, by name."""

from functools import cache

from provision import auto
from provision.formulations import (
    assignment_cpsat,
    assignment_milp,
    gpulets_patterns,
    mixed_counts,
    partition_counts,
    patterns,
    patterns_throughput,
)
from provision.heuristics import (
    gpulets,
    gpulets_ideal,
    greedy,
    gslice,
    igniter,
    inss,
    lns,
    mig_serving,
    mig_serving_slow,
    nexus,
    paris,
    parvagpu,
)
from provision.models.errors import InputError

MODULES = (
    auto, partition_counts, patterns, patterns_throughput, mixed_counts, greedy,
    lns, parvagpu, mig_serving, mig_serving_slow, paris, igniter,
    gpulets_patterns, gpulets, gpulets_ideal, nexus, gslice, inss, assignment_cpsat, assignment_milp,
)


@cache
def methods():
    """All methods by name, ours first."""
    return {method.name: method for module in MODULES for method in module.METHODS}


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

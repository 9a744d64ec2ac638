"""The register of ways to share a slice: each kind of performance data names the oracle of its patterns."""

from functools import cache
from importlib.metadata import entry_points
from typing import cast
from weakref import WeakKeyDictionary

from provision.formulations.pricing.oracle import OracleFactory, PatternOracle
from provision.formulations.search.problem import Problem
from provision.models.base.errors import InputError

GROUP = "provision.patterns"
"""Entry points, named after kinds of performance data; each names an OracleFactory."""

_ORACLES: WeakKeyDictionary[Problem, dict[int, list[PatternOracle]]] = WeakKeyDictionary()


@cache
def factory_of(kind: str) -> OracleFactory:
    """What makes the oracles for a kind of performance data; its module is imported when first asked for.

    Raises
    ------
    InputError
        If no entry point has the name of the kind.
    """
    for found in entry_points(group=GROUP, name=kind):
        return cast(OracleFactory, found.load())
    raise InputError(f"performance data of kind {kind!r} says that replicas share slices, but no entry point of "
                     f"{GROUP} says what may run together there; declare one and install its package again")


def oracles_of(problem: Problem) -> dict[int, list[PatternOracle]]:
    """The oracles of every shareable slice type of a problem; they are made once."""
    if problem not in _ORACLES:
        _ORACLES[problem] = _made(problem)
    return _ORACLES[problem]


def _made(problem: Problem) -> dict[int, list[PatternOracle]]:
    found: dict[int, list[PatternOracle]] = {}
    for one in problem.shareable if problem.roles else ():
        slice_type = problem.segments.slice_types[one.slice_type]
        entry = problem.instance.fleet[slice_type.entry]
        made = factory_of(one.data.kind)(
            problem.instance, entry, slice_type.profile, one.data, problem.roles, problem.copies
        )
        if made is not None:
            found.setdefault(one.slice_type, []).append(made)
    return found

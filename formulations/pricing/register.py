"""The register of ways to share a slice: each belongs to a kind of performance data, and is found by an entry point."""

from functools import cache
from importlib.metadata import entry_points
from weakref import WeakKeyDictionary

from provision.formulations.pricing.oracle import PatternOracle, WayOfSharing
from provision.formulations.search.problem import Problem, Shareable
from provision.models.base.errors import InputError

GROUP = "provision.patterns"
"""The group of entry points. Each has the name of a kind of performance data and loads a WayOfSharing or OracleFactory.
"""

_ORACLES: WeakKeyDictionary[Problem, dict[int, list[PatternOracle]]] = WeakKeyDictionary()


@cache
def way_of(kind: str) -> WayOfSharing:
    """The way of sharing that a kind of performance data describes. Its module is imported at the first call.

    Raises
    ------
    InputError
        If no entry point has the name of the kind.
    """
    for found in entry_points(group=GROUP, name=kind):
        way = found.load()
        return way if isinstance(way, WayOfSharing) else WayOfSharing(way)
    raise InputError(f"performance data of kind {kind!r} says that replicas share slices, but no entry point of "
                     f"{GROUP} says what may run together there; declare one and install its package again")


def oracles_of(problem: Problem) -> dict[int, list[PatternOracle]]:
    """The oracles of every shareable slice type of a problem. They are made once and kept."""
    if problem not in _ORACLES:
        _ORACLES[problem] = _made(problem)
    return _ORACLES[problem]


def oracle_of(problem: Problem, shared: Shareable) -> PatternOracle | None:
    """A new oracle of one shareable slice type for one performance file; None if there is none."""
    if not problem.roles:
        return None
    slice_type = problem.segments.slice_types[shared.slice_type]
    entry = problem.instance.fleet[slice_type.entry]
    return way_of(shared.data.kind).oracle(
        problem.instance, entry, slice_type.profile, shared.data, problem.roles, problem.copies
    )


def _made(problem: Problem) -> dict[int, list[PatternOracle]]:
    found: dict[int, list[PatternOracle]] = {}
    for shared in problem.shareable:
        made = oracle_of(problem, shared)
        if made is not None:
            found.setdefault(shared.slice_type, []).append(made)
    return found

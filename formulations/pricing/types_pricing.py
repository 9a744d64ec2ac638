"""Calls the pattern oracles of all slice types of a problem. If an executor has several workers, each call is a task.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from provision.formulations.pricing.oracle import Priced
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.problem import Group, Problem
from provision.models.base.arrays import Ints
from provision.models.base.identity import Identity
from provision.models.problem.executor import Executor, shared
from provision.models.problem.instance import Instance

Recipe = tuple[Instance, tuple[Group, ...], bool, dict[tuple[tuple[str, ...], float], frozenset[float]]]
"""The arguments from which a Problem is built."""


class TypesPricing:
    """Calls the oracles of a Problem, in this process or on an executor.

    Parameters
    ----------
    problem
        The Problem.
    executor
        Where the oracles run. If it has one worker, or if there is a single oracle, they run in this process.
    """

    def __init__(self, problem: Problem, executor: Executor) -> None:
        self.problem, self.executor = problem, executor
        self._given: Any = None

    def priced(self, roles: Ints, floors: Ints, effort: int) -> Iterator[tuple[int, Priced]]:
        """Yield what every oracle finds; see ``PatternOracle.price``.

        The order does not depend on the executor. A task that the executor loses is done in this process, since without
        its result there is no bound.

        Yields
        ------
        tuple of int and Priced
            The slice type and the result.
        """
        oracles = [(slice_type, at) for slice_type, several in oracles_of(self.problem).items()
                   for at in range(len(several))]
        tasks = [(slice_type, at, roles, int(floors[slice_type]), effort) for slice_type, at in oracles]
        if self.executor.workers == 1 or len(tasks) == 1:
            for task in tasks:
                yield task[0], _priced(self.problem, *task)
            return
        if self._given is None:
            problem = self.problem
            self._given = self.executor.share(
                (problem.instance, problem.groups, problem.relaxed_problem, problem.finer))
        found = self.executor.map(_task, [(self._given, *task) for task in tasks])
        for task, one in zip(tasks, found, strict=True):
            yield task[0], one if one is not None else _priced(self.problem, *task)


def _task(given: Any, slice_type: int, at: int, roles: Ints, floor: int, effort: int) -> Priced:
    """The result of one oracle of the Problem that a shared Recipe describes, as a task."""
    return _priced(_built(Identity(shared(given))), slice_type, at, roles, floor, effort)


def _priced(problem: Problem, slice_type: int, at: int, roles: Ints, floor: int, effort: int) -> Priced:
    return oracles_of(problem)[slice_type][at].price(roles, floor, effort)


@lru_cache(maxsize=4)
def _built(recipe: Identity[Recipe]) -> Problem:
    """The Problem of a recipe, built once by each process."""
    return Problem(*recipe.one)

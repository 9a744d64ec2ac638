"""Explicit GPUs for the assignment models: how many copies of each fleet entry, and the rows that both models have.

The models are written against a Program, which CP-SAT and PuLP each provide.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of

MOST_GPUS = 20
"""Most GPUs to choose from: larger instances, or a dozen workloads under interference, are not proven in minutes."""


Variable = Any
"""A variable of a program, in its own type."""
LinearTerms = Sequence[tuple[float, Variable]]
"""A linear expression: pairs of coefficient and variable."""
Level = tuple[float, Variable]
"""An amount: a unit, and a variable that counts units."""
Value = Callable[[Variable], float]
"""The value of each variable in a solution."""
Ended = Literal["optimal", "infeasible", "time_limit", "stopped"]


class Program(Protocol):
    """Takes variables, all at least 0, and rows, and solves them.

    ``safe`` tells how it rounds: against a plan (a solution always holds), or else in favour of one (a bound holds).
    """

    safe: bool

    def whole(self, name: str, most: float) -> Variable:
        """A whole number up to ``most``."""
        ...

    def level(self, name: str, terms: LinearTerms, beyond: float, most: float) -> Level:
        """An amount up to ``most`` that is at least 0 and at least ``terms - beyond``."""
        ...

    def exactly(self, terms: LinearTerms, value: int) -> None:
        """A row: a sum of whole numbers has a value."""
        ...

    def at_most(self, terms: LinearTerms, limit: float, when: Variable | None = None) -> None:
        """A row: a sum keeps a limit; where the variable ``when`` is given, only if that is 1."""
        ...

    def minimise(self, terms: LinearTerms) -> None:
        """The objective."""
        ...

    def hint(self, variable: Variable, value: int) -> None:
        """A value of a variable at which the search may begin."""
        ...

    def solve(self, limit_s: float, found: Callable[[Value], None]) -> tuple[Ended, float | None]:
        """How the search ended, and the bound proven by then; ``found`` is called with every better solution."""
        ...


class Candidates:
    """What all candidates have in common.

    ``own[w, e]`` is the number of GPUs of entry e that serve workload w by itself, infinite where they cannot;
    ``most_own[w, e]`` is the most of them on which it can be of use, given also its largest number of replicas.
    """

    instance: Instance
    own: NDArray[np.float64]
    most_own: NDArray[np.float64]

    def copies(self, start: Plan | None = None) -> NDArray[np.int64]:
        """(GPUs,) fleet entry of every GPU that may be used; for the most throughput all there are.

        No plan needs more GPUs of an entry than those on which all workloads can be of use: with more, the GPUs that
        hold only workloads without a replica limit would outnumber those that these need by themselves. An optimal plan
        also costs no more than a known plan, or than every workload by itself on the GPU type that is cheapest for it.

        Raises
        ------
        UnsupportedError
            When no such number is known or it is too large.
        """
        fleet = self.instance.fleet
        count = np.array([np.inf if entry.count is None else entry.count for entry in fleet])
        most = count if self.instance.objective == THROUGHPUT else \
            np.minimum(np.minimum(count, self.most_own.sum(axis=0)), self._paid(count, start))
        if most.sum() > MOST_GPUS:
            found = f"{most.sum():.0f}" if np.isfinite(most).all() else "any number"
            raise UnsupportedError(
                f"the assignment methods take at most {MOST_GPUS} GPUs to choose from, here are {found}; "
                "use --method auto"
            )
        return np.repeat(np.arange(len(fleet)), most.astype(int))

    def _paid(self, count: NDArray[np.float64], start: Plan | None) -> NDArray[np.float64]:
        """(entries,) the number of GPUs of each entry that costs no more than a known plan."""
        weight = np.array([objective_of(self.instance).weight(entry) for entry in self.instance.fleet])
        unlimited, known = (
            np.where(np.isinf(count), 1.0, np.inf),
            objective_of(self.instance).value(start) if start else np.inf,
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            separate = np.nan_to_num(self.own * weight * unlimited, nan=np.inf, posinf=np.inf).min(axis=1).sum()
            paid = np.floor(min(known, separate) * (1 + TOLERANCE) / weight)
        return np.where(np.isnan(paid), np.inf, paid)


class Rows:
    """What both models have: GPUs ``g`` of fleet entries ``entry[g]``, used or not, at some price."""

    def __init__(self, candidates: Candidates, copies: NDArray[np.int64], program: Program, name: str) -> None:
        self.program, self.name = program, name
        self.instance, self.copies = candidates.instance, copies
        self.entry = [self.instance.fleet[e] for e in copies]
        self.gpus, self.workloads = range(len(copies)), range(len(self.instance.workloads))
        self.used = [program.whole(f"used_{g}", 1) for g in self.gpus]

    def alike(self, gpu: int) -> int | None:
        """The GPU before this one, when both are of one fleet entry; else None."""
        return gpu - 1 if gpu and self.copies[gpu - 1] == self.copies[gpu] else None

    def minimise_weight(self, bound: float) -> None:
        """Objective: price per hour, or number, of the GPUs; never below a bound that is known."""
        terms = [
            (objective_of(self.instance).weight(entry), used) for entry, used in zip(self.entry, self.used, strict=True)
        ]
        self.program.minimise(terms)
        most = max((weight for weight, _ in terms), default=0) or 1
        self.program.at_most([(-weight / most, used) for weight, used in terms], -bound / most * (1 - TOLERANCE))

    def numbered(self, plan: Plan, key: Callable[[PlannedGpu], float]) -> Iterator[tuple[int, PlannedGpu]]:
        """(g, GPU) of a plan's GPUs, those of one entry in ascending order of a key; those without a copy left out."""
        entries = objective_of(self.instance).entries_of(plan)
        for e in set(self.copies):
            mine = sorted((gpu for gpu, entry in zip(plan.gpus, entries, strict=True) if entry == e), key=key)
            yield from zip([g for g in self.gpus if self.copies[g] == e], mine, strict=False)


def rounded_up(total: float, weights: Sequence[float]) -> float:
    """A fractional bound on the objective, rounded up to a multiple of the GPUs' weight where they all have one."""
    if len(set(weights)) == 1 and weights[0] > 0:
        return weights[0] * math.ceil(total / weights[0] - TOLERANCE)
    return total * (1 - TOLERANCE)

"""Defines what both assignment models share: how many GPUs of each fleet entry a model has, and common rows.

A model has variables for each of its GPUs. It is written for the interface Program, which CpSatProgram and PulpProgram
implement.
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
"""The most GPUs in a model. With more (or with a dozen workloads under interference), a proof takes longer than
minutes.
"""


Variable = Any
"""A variable of a program, in the type of the solver's library."""
LinearTerms = Sequence[tuple[float, Variable]]
"""A linear expression: pairs of coefficient and variable."""
Level = tuple[float, Variable]
"""A variable amount: the size of a unit, and the variable that counts units."""
Value = Callable[[Variable], float]
"""A function that returns the value of a variable in a solution."""
Ended = Literal["optimal", "infeasible", "time_limit"]


class Program(Protocol):
    """An integer program: variables (all at least 0) and rows are added to it, and then it is solved.

    ``safe`` says how coefficients are rounded. If true, every solution is a feasible plan. If false, every feasible
    plan is a solution, and the bound is valid.
    """

    safe: bool

    def whole(self, name: str, most: float) -> Variable:
        """A whole-number variable from 0 to ``most``."""
        ...

    def level(self, name: str, terms: LinearTerms, beyond: float, most: float) -> Level:
        """An amount from 0 to ``most`` that is at least ``terms - beyond``."""
        ...

    def fraction(self, name: str) -> Level:
        """An amount from 0 to 1 that rows limit from above. Its unit may be as large as FORGIVEN where it counts whole
        units; rows that exclude no plan are loosened by as much. Rows take it as it is: small coefficients of a fine
        unit would be rounded coarsely.
        """
        ...

    def exactly(self, terms: LinearTerms, value: int) -> None:
        """Add a row: a sum of whole numbers equals ``value``."""
        ...

    def at_most(self, terms: LinearTerms, limit: float, when: Variable | None = None) -> None:
        """Add a row: a sum is at most ``limit``. With a variable ``when``, the row holds only if the variable is 1."""
        ...

    def minimise(self, terms: LinearTerms) -> None:
        """Set the objective, a sum to be minimised."""
        ...

    def hint(self, variable: Variable, value: int) -> None:
        """Suggest a value of a variable with which the search may begin."""
        ...

    def solve(self, limit_s: float, found: Callable[[Value], None]) -> tuple[Ended, float | None]:
        """Solve for at most ``limit_s`` seconds; return how the search ended and the bound proven by then (None if
        none).

        ``found`` is called with the values of every better solution.
        """
        ...


class Candidates:
    """Base class of the candidates from which the models choose.

    ``own[w, e]`` is the number of GPUs of fleet entry e that serve workload w by itself; infinite where they cannot.
    ``most_own[w, e]`` is the most of these GPUs that w can make use of, given its largest number of replicas.
    """

    instance: Instance
    own: NDArray[np.float64]
    most_own: NDArray[np.float64]

    def copies(self, start: Plan | None = None) -> NDArray[np.int64]:
        """(GPUs,) the fleet entry of every GPU that the model may use. For max_throughput, these are all GPUs of the
        fleet.

        No plan needs more GPUs of an entry than the sum of what each workload can make use of. With more GPUs, those
        that hold only workloads without a replica limit would outnumber the GPUs that these workloads need by
        themselves. Besides, an optimal plan costs no more than a known plan, and no more than every workload by itself
        on the GPU type that is cheapest for it.

        Raises
        ------
        UnsupportedError
            If no such number is known, or if it exceeds MOST_GPUS.
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
        """(entries,) the most GPUs of each entry in a plan that costs no more than a known plan."""
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
    """The rows that both models share. GPU ``g`` is of fleet entry ``entry[g]``; the variable ``used[g]`` is 1 if the
    plan uses it.
    """

    def __init__(self, candidates: Candidates, copies: NDArray[np.int64], program: Program, name: str) -> None:
        self.program, self.name = program, name
        self.instance, self.copies = candidates.instance, copies
        self.entry = [self.instance.fleet[e] for e in copies]
        self.gpus, self.workloads = range(len(copies)), range(len(self.instance.workloads))
        self.used = [program.whole(f"used_{g}", 1) for g in self.gpus]

    def alike(self, gpu: int) -> int | None:
        """The previous GPU if it is of the same fleet entry, else None."""
        return gpu - 1 if gpu and self.copies[gpu - 1] == self.copies[gpu] else None

    def minimise_weight(self, bound: float) -> None:
        """Set the objective: the price per hour, or the number, of the used GPUs. A known ``bound`` is added as a row.
        """
        terms = [
            (objective_of(self.instance).weight(entry), used) for entry, used in zip(self.entry, self.used, strict=True)
        ]
        self.program.minimise(terms)
        most = max((weight for weight, _ in terms), default=0) or 1
        self.program.at_most([(-weight / most, used) for weight, used in terms], -bound / most * (1 - TOLERANCE))

    def numbered(self, plan: Plan, key: Callable[[PlannedGpu], float]) -> Iterator[tuple[int, PlannedGpu]]:
        """Pairs (g, GPU of a plan). Within an entry they are in ascending order of ``key``; GPUs that the model lacks
        are skipped.
        """
        entries = objective_of(self.instance).entries_of(plan)
        for e in set(self.copies):
            mine = sorted((gpu for gpu, entry in zip(plan.gpus, entries, strict=True) if entry == e), key=key)
            yield from zip([g for g in self.gpus if self.copies[g] == e], mine, strict=False)


def rounded_up(total: float, weights: Sequence[float]) -> float:
    """A lower bound on the objective, from the value ``total`` of a fractional solution, safe against rounding errors.
    If all GPUs have the same weight, the bound is rounded up to a multiple of it.
    """
    if len(set(weights)) == 1 and weights[0] > 0:
        return weights[0] * math.ceil(total / weights[0] - TOLERANCE)
    return total * (1 - TOLERANCE)

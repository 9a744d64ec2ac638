"""Fewest GPUs for gpu-lets, exactly: every way to use one GPU is a column of a set covering problem.

A column is one way to use a GPU: its split, and for each part the replicas that take turns there with their batches.
Its entries are the parts of the rates that the GPU carries under the worst pressure between its parts. With the batch
sizes of the data there are few enough columns to list. Any prices of the rates give a bound, as no GPU is worth more
than the best column; good prices come from the linear relaxation (HiGHS), solved by column generation, and the bound
does not depend on the solver being right. Then, for rising numbers of GPUs, an integer program over the columns that
could be part of a cover by so many tries to find one. When it has none even with a tolerance, that number of GPUs is
impossible.
"""

import math
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from provision.formulations.linear.highs import linprog, milp
from provision.formulations.turns.parts import Parts, TooManyError, emissions
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SOLVER, STRICT
from provision.models.contents.alone.feasibility import refusal
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.turns.plans import FEATURES, outcome
from provision.models.contents.turns.tables import ALONE, GpuletTables, Part, TurnTables
from provision.models.hardware.gpu import WHOLE
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Incumbent, Outcome, Search

MOST_ROUNDS = 1000
FEW = 1000
"""A cover is first sought among this many columns of the highest value."""


Listed = tuple[tuple[Parts, ...], Ints, Floats]
"""The Parts of a split, and ``ways`` and ``covered`` as in Columns."""


class Columns(NamedTuple):
    """Ways to use a GPU: ``covered`` (columns, workloads) is the part of each rate that a column carries.

    ``split`` (columns,) is the index of the column's one or two Parts in ``pairs``; ``ways`` (columns, 2) is the way
    that it uses of each, -1 for no second part.
    """

    pairs: tuple[tuple[Parts, ...], ...]
    split: Ints
    ways: Ints
    covered: Floats

    def take(self, chosen: Ints) -> Self:
        """Some of the columns."""
        return self._replace(split=self.split[chosen], ways=self.ways[chosen], covered=self.covered[chosen])


def solve(instance: Instance, control: Search) -> Outcome:
    """The fewest GPUs that serve all rates, or the proof that those of the fleet are too few."""
    started = perf_counter()
    refused = refusal(instance, best_segments(instance), started)
    if refused:
        return refused
    tables = GpuletTables(instance)
    try:
        columns = all_columns(tables)
    except TooManyError:
        reason = "too many sets of workloads may take turns on a part to list them; use gpulets or gpulets-ideal"
        spent = perf_counter() - started
        return Outcome("unknown", "completed", bound=_value(tables, 1), reason=reason, build_seconds=spent)
    return _search(tables, columns, control, started)


def all_columns(tables: TurnTables) -> Columns:
    """Every way to use one GPU."""
    found = []
    for split in tables.data.splits:
        shares = [tables.shares.index(share) for share in split]
        found.append(_pairs(tables, *shares) if len(shares) == 2 else _wholes(tables, shares[0]))
    of_split = np.repeat(np.arange(len(found)), [len(ways) for _, ways, _ in found])
    pairs, ways, covered = zip(*found, strict=True)
    return Columns(pairs, of_split, np.concatenate(ways), np.concatenate(covered))


def _wholes(tables: TurnTables, share: int) -> Listed:
    parts = Parts(tables, share, np.array([ALONE]))
    fits = np.flatnonzero(parts.memory_gib <= tables.gpu.slice_memory_gib(WHOLE))
    return (parts,), np.column_stack([fits, np.full(len(fits), -1)]), parts.covered[0][fits]


def _pairs(tables: TurnTables, one: int, other: int) -> Listed:
    """Two parts beside each other, where neither breaks an SLO of the other and both fit into the memory."""
    felt = [emissions(tables, share) for share in (one, other)]
    first, second = Parts(tables, one, felt[1]), Parts(tables, other, felt[0])
    covered = first.covered[np.searchsorted(felt[1], second.emitted)].transpose(1, 0, 2)
    beside = second.covered[np.searchsorted(felt[0], first.emitted)]
    memory_gib = np.add.outer(first.memory_gib, second.memory_gib)
    holds = covered.any(axis=2) & beside.any(axis=2) & (memory_gib <= tables.gpu.slice_memory_gib(WHOLE))
    return (first, second), np.argwhere(holds), np.minimum(covered + beside, 1)[holds]


def _search(tables: GpuletTables, columns: Columns, control: Search, started: float) -> Outcome:
    """Rising numbers of GPUs until one is enough, the fleet's are too few, or time is up."""
    prices = relaxed_prices(columns.covered)
    bound, most = math.ceil(prices.sum() * (1 - STRICT) - SOLVER), tables.instance.fleet[0].count
    number, built = bound, perf_counter()
    while most is None or number <= most:
        left_s = control.time_limit_s - (perf_counter() - started)
        chosen, proven = _cover(columns, prices, number, left_s)
        if chosen is not None:
            return _found(tables, chosen, bound, started, built)
        bound += proven and bound == number
        number += 1
        control.report(Incumbent(None, float(bound)))
        if left_s <= 0:
            break
    spent: dict[str, Any] = {"build_seconds": built - started, "solve_seconds": perf_counter() - built}
    if most is not None and bound > most:
        reason = f"at least {bound} GPUs are needed and the fleet has {most}; allow more GPUs or lower the rates"
        return Outcome("infeasible", "proved", bound=_value(tables, bound), reason=reason, **spent)
    return Outcome("unknown", "time_limit", bound=_value(tables, bound), reason="no plan found in time", **spent)


def relaxed_prices(covered: Floats) -> Floats:
    """(workloads,) prices of the rates, found by column generation, at which no column is worth more than 1."""
    generated = np.unique(covered.argmax(axis=0))
    best = np.zeros(covered.shape[1])
    for _ in range(MOST_ROUNDS):
        cost, need = np.ones(len(generated)), -np.ones(covered.shape[1])
        relaxed = linprog(cost, A_ub=-covered[generated].T, b_ub=need, method="highs")
        prices = np.maximum(-relaxed.ineqlin.marginals, 0)
        worth = covered @ prices
        best = max(best, prices / worth.max(), key=np.sum)
        if worth.max() <= 1 + STRICT:
            break
        generated = np.union1d(generated, worth.argmax())
    return best


def _cover(columns: Columns, prices: Floats, number: int, left_s: float) -> tuple[Columns | None, bool]:
    """Columns for ``number`` GPUs that carry all rates, or None; and whether it is proven that there are none.

    All columns of a cover are together worth at least the sum of the prices, and each at most 1. So none is worth less
    than 1 by more than the number exceeds that sum. The most valuable columns are tried first on their own.
    """
    worth = columns.covered @ prices
    useful = np.argsort(-worth, kind="stable")[: np.count_nonzero(worth >= 1 - (number - prices.sum()) - SOLVER)]
    for tried in (useful[:FEW], useful) if len(useful) > FEW else (useful,):
        chosen, proven = _cover_by(columns.take(tried), number, left_s)
        if chosen is not None:
            return chosen, False
    return None, proven


def _cover_by(columns: Columns, number: int, left_s: float) -> tuple[Columns | None, bool]:
    """As ``_cover``, with all of these columns."""
    columns = columns.take(_undominated(columns.covered))
    for needed in (1 - SOLVER, 1 + SOLVER):
        many, proven = _integers(columns.covered, number, needed, left_s) if left_s > 0 else (None, False)
        if many is None:
            return None, proven and needed < 1
        chosen = columns.take(np.repeat(np.arange(len(many)), many))
        if (chosen.covered.sum(axis=0) >= 1 - STRICT).all():
            return chosen, False
    return None, False


def _undominated(covered: Floats) -> Ints:
    """Indices of the rows that no other row equals or exceeds everywhere; one of each set of equal rows."""
    left = np.argsort(-covered.sum(axis=1), kind="stable")
    chosen = []
    while len(left):
        chosen.append(left[0])
        left = left[(covered[left] > covered[left[0]]).any(axis=1)]
    return np.array(chosen, int)


def _integers(covered: Floats, number: int, needed: float, left_s: float) -> tuple[Ints | None, bool]:
    """(columns,) uses of each so that ``number`` carry a part ``needed`` of all rates; None without, and if proven."""
    size = len(covered)
    rows = [LinearConstraint(covered.T, lb=needed), LinearConstraint(np.ones((1, size)), ub=number)]
    found = milp(np.ones(size), constraints=rows, integrality=np.ones(size, int), bounds=Bounds(0, number),
                 options={"time_limit": left_s}) if size else None
    if found is None or found.status == 2:
        return None, True
    return (None, False) if found.x is None else (np.round(found.x).astype(int), False)


def _found(tables: GpuletTables, chosen: Columns, bound: int, started: float, built: float) -> Outcome:
    """The plan of some columns; optimal when no fewer GPUs can do."""
    gpus = _deal(tables, chosen)
    found = outcome(tables, gpus, "gpulets-patterns", started)
    proved = len(gpus) <= bound
    return Outcome(
        "optimal" if proved else "feasible", "proved" if proved else "completed", found.plan,
        bound=_value(tables, bound), build_seconds=built - started, solve_seconds=perf_counter() - built,
    )


def _value(tables: GpuletTables, gpus: int) -> float:
    """The objective of a number of GPUs."""
    return gpus * tables.instance.weight(tables.instance.fleet[0])


def _deal(tables: TurnTables, columns: Columns) -> list[list[Part]]:
    """GPUs as lists of (share, load); rates are dealt to the replicas in order, each up to what it carries."""
    left = tables.rates.copy()
    gpus: list[list[Part]] = []
    for split, ways in zip(columns.split, columns.ways, strict=True):
        parts = list(zip(columns.pairs[split], ways, strict=False))
        gpu: list[Part] = []
        for at, (part, way) in enumerate(parts):
            other = parts[1 - at] if len(parts) == 2 else None
            received = np.searchsorted(part.pressures, other[0].emitted[other[1]]) if other else 0
            given = np.minimum(part.covered[received, way] * tables.rates, left)
            left -= given
            load = tuple((int(one), float(given[one])) for one in np.flatnonzero(given > STRICT * tables.rates))
            gpu += [(part.share, load)] * bool(load)
        gpus += [gpu] * bool(gpu)
    return gpus


METHODS = (
    Method(
        name="gpulets-patterns",
        summary="fewest GPUs with gpu-lets, proven: set covering by every way to use one GPU",
        run=solve,
        exact=True,
        source="this package",
        features=FEATURES,
    ),
)

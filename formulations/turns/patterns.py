"""Fewest GPUs for gpu-lets, exactly: every way to use one GPU is a column of a set covering problem.

A column says what a GPU carries of each rate: its split, and on every part the replicas that take turns, with their
batches, beside the other part under the worst pressure that it exerts. With the batch sizes of the data there are few
enough to list. From any prices of the rates follows a bound: no GPU is worth more than the best column. Good prices
come from the linear relaxation (HiGHS), solved by generating columns; the bound does not rest on the solver. Then for
rising numbers of GPUs an integer program over the columns that can be part of so good a cover; when it has no solution,
with a tolerance given away, that number is disproved.
"""

import math
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from provision.formulations.linear.highs import linprog, milp
from provision.formulations.turns.parts import Parts, TooManyError, emissions
from provision.models.base.arrays import Floats, Ints
from provision.models.contents.alone.feasibility import refusal
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.turns.plans import FEATURES, outcome
from provision.models.contents.turns.tables import ALONE, GpuletTables, Part, TurnTables
from provision.models.hardware.gpu import WHOLE
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Incumbent, Outcome, Search

GIVEN_AWAY = 1e-6
"""Part of a rate that a cover may lack before it counts as disproved."""
EXACT = 1e-10
MOST_ROUNDS = 1000
FEW = 1000
"""Columns among which a cover is looked for before all that could be part of one."""


Listed = tuple[tuple[Parts, ...], Ints, Floats]
"""The Parts of a split, and ``ways`` and ``covered`` as in Columns."""


class Columns(NamedTuple):
    """Ways to use a GPU: ``covered`` (columns, workloads) parts of the rates; per column the ways of its parts.

    ``ways`` is (columns, 2) with -1 for no second part, ``split`` (columns,) an index into ``pairs`` of Parts.
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
    bound, most = math.ceil(prices.sum() * (1 - EXACT) - GIVEN_AWAY), tables.instance.fleet[0].count
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
    """Prices of the rates at which no column is worth more than 1, as dear as generating columns makes them."""
    generated = np.unique(covered.argmax(axis=0))
    best = np.zeros(covered.shape[1])
    for _ in range(MOST_ROUNDS):
        cost, need = np.ones(len(generated)), -np.ones(covered.shape[1])
        relaxed = linprog(cost, A_ub=-covered[generated].T, b_ub=need, method="highs")
        prices = np.maximum(-relaxed.ineqlin.marginals, 0)
        worth = covered @ prices
        best = max(best, prices / worth.max(), key=np.sum)
        if worth.max() <= 1 + EXACT:
            break
        generated = np.union1d(generated, worth.argmax())
    return best


def _cover(columns: Columns, prices: Floats, number: int, left_s: float) -> tuple[Columns | None, bool]:
    """Columns for so many GPUs that carry all rates, or None; and whether it is proven that there are none.

    In a cover by ``number`` columns none is worth less than 1 by more than the number exceeds the sum of the prices.
    Those worth most are tried first on their own.
    """
    worth = columns.covered @ prices
    useful = np.argsort(-worth, kind="stable")[: np.count_nonzero(worth >= 1 - (number - prices.sum()) - GIVEN_AWAY)]
    for tried in (useful[:FEW], useful) if len(useful) > FEW else (useful,):
        chosen, proven = _cover_by(columns.take(tried), number, left_s)
        if chosen is not None:
            return chosen, False
    return None, proven


def _cover_by(columns: Columns, number: int, left_s: float) -> tuple[Columns | None, bool]:
    """The same with these columns only."""
    columns = columns.take(_undominated(columns.covered))
    for needed in (1 - GIVEN_AWAY, 1 + GIVEN_AWAY):
        many, proven = _integers(columns.covered, number, needed, left_s) if left_s > 0 else (None, False)
        if many is None:
            return None, proven and needed < 1
        chosen = columns.take(np.repeat(np.arange(len(many)), many))
        if (chosen.covered.sum(axis=0) >= 1 - EXACT).all():
            return chosen, False
    return None, False


def _undominated(covered: Floats) -> Ints:
    """Rows that no other row is at least equal to everywhere; of equal rows one."""
    left = np.argsort(-covered.sum(axis=1), kind="stable")
    chosen = []
    while len(left):
        chosen.append(left[0])
        left = left[(covered[left] > covered[left[0]]).any(axis=1)]
    return np.array(chosen, int)


def _integers(covered: Floats, number: int, needed: float, left_s: float) -> tuple[Ints | None, bool]:
    """How often each column is used when at most so many cover a part of every rate; whether none is proven."""
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
    """The objective of so many GPUs."""
    return gpus * tables.instance.weight(tables.instance.fleet[0])


def _deal(tables: TurnTables, columns: Columns) -> list[list[Part]]:
    """GPUs as lists of (share, load): rates go to replicas in turn, as much as each carries."""
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
            load = tuple((int(one), float(given[one])) for one in np.flatnonzero(given > EXACT * tables.rates))
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

"""Diving finds a whole-number solution by fixing columns of the linear program step by step.

Each step fixes columns whose values are integral or nearly so, and solves the linear program for the rest of the
demand. If the new value exceeds the target price, new patterns are priced for the rest. If they do not help, the step
is undone, and a smaller step or another column is tried. After several failures the dive begins again, with fewer GPUs
fixed and some random noise. The last few GPUs are left to the integer program. (Diving heuristics with column
generation: Sadykov et al. 2019.)
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.generation import Generation
from provision.formulations.master.role_columns import MasterDuals, RoleColumns
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SOLVER


class Dive(NamedTuple):
    """The end of a dive, for the integer program.

    ``least`` is the least value of each column, and ``kept`` says whether a plan of about the target price may use the
    column; both have the shape (columns,).
    """

    least: NDArray[np.int64]
    kept: NDArray[np.bool_]


class Fixed(NamedTuple):
    """The least values of patterns and replica sets of a program. Columns that are added later have the least value 0.
    """

    patterns: NDArray[np.int64]
    replica_sets: NDArray[np.int64]


def dive(columns: Generation, until: Deadline, draw: np.random.Generator, below: float) -> Iterator[Dive]:
    """Yield the end of one dive after another. Each leaves at most one GPU to the integer program.

    Parameters
    ----------
    columns
        The columns so far. Dives add further columns.
    until
        When to end.
    draw
        Random generator for the choice of columns when a dive begins again.
    below
        The price of the best plan known, in units.
    """
    program, step = columns.program, float(columns.problem.dearest)
    held = start = Fixed(np.zeros(0, int), np.zeros(0, int))
    tried, noise = np.zeros(0, int), np.zeros(1)
    pace, failures, begun, at = SCHEDULE.pace, 0, 0, program.relaxed(strict=True)
    goal = 0.0 if at is None else max(columns.bound, _aim(columns.units(at), below))
    while at is not None and goal < below and not until.over:
        patterns, replica_sets = program.parts(at)
        left = _left(columns, at, patterns, held)
        start = held if left >= SCHEDULE.few else start
        if left <= 1:
            least = _least(program, held)
            most = goal if goal + step >= below else goal + step
            yield Dive(least, (at.reduced <= most / step - at.value + SOLVER) | (least > 0))
            failures = SCHEDULE.again
        up = _nearly(patterns, pace, noise, 1, tried)
        fixed = Fixed(_taken(patterns, up), _taken(replica_sets, _nearly(replica_sets, pace, noise, 0, tried[:0])))
        found = _priced(columns, fixed, goal)
        if found is not None and columns.units(found) <= goal and left > 1:
            at, held, tried = found, fixed, tried[:0]
            continue
        failures, pace = failures + 1, pace / 4
        tried = np.concatenate([tried, up[:1]]) if len(up) == 1 else tried
        if failures > SCHEDULE.again:
            failures, pace, tried, begun = 0, SCHEDULE.pace, tried[:0], begun + 1
            held, noise = start, draw.uniform(0, SCHEDULE.noise, len(patterns))
            if begun % 2 == 0 and goal + step < below:
                goal += step
        at = program.relaxed(strict=True, least=_least(program, held))


def _aim(units: float, below: float) -> float:
    """The target price of a dive, in units of price: the linear program's value ``units`` rounded up.

    If the price ``below`` of the best plan exceeds that value by more than the fraction ``SCHEDULE.fair``, the target
    is higher by the fraction ``SCHEDULE.close``: a dive to it succeeds more often.
    """
    return float(math.ceil(units * (1 + SCHEDULE.close)) if below > units * (1 + SCHEDULE.fair) else math.ceil(units))


def _priced(columns: Generation, fixed: Fixed, goal: float) -> MasterDuals | None:
    """The solution of the linear program with the columns ``fixed``; None if it has none.

    If it costs more than ``goal``, columns are priced, and it is solved again if there are new ones.
    """
    found = columns.program.relaxed(strict=True, least=_least(columns.program, fixed))
    if found is not None and columns.units(found) > goal and columns.price(found, SCHEDULE.slight, 0)[1]:
        return columns.program.relaxed(strict=True, least=_least(columns.program, fixed))
    return found


def _left(columns: Generation, at: MasterDuals, patterns: NDArray[np.float64], held: Fixed) -> float:
    """The cost of the patterns that are not fixed, in multiples of the dearest GPU's price."""
    worth = np.array([at.slice_types[slice_type] for slice_type, _ in columns.program.patterns])
    return float((patterns - _padded(held.patterns, len(patterns))) @ worth)


def _nearly(parts: NDArray[np.float64], pace: float, noise: NDArray[np.float64], least: int,
            without: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of columns to round up: the columns whose fractional parts are largest.

    Their number is at most the fraction ``pace`` of the sum of all fractional parts, or ``least`` if that is more.
    Columns ``without`` are not rounded up.
    """
    rest = np.maximum(parts - np.floor(parts + SOLVER), 0.0)
    most = max(int(pace * rest.sum()), least)
    rank = rest + np.resize(noise, len(rest)) * (rest > SOLVER)
    rank[without] = 0.0
    largest = np.argsort(-rank, kind="stable")[:most]
    return largest[(rest[largest] >= SCHEDULE.half) | ((np.arange(len(largest)) < least) & (rank[largest] > SOLVER))]


def _taken(parts: NDArray[np.float64], up: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values of columns rounded down, but those in ``up`` rounded up."""
    whole = np.floor(parts + SOLVER).astype(int)
    whole[up] += 1
    return whole


def _padded(numbers: NDArray[np.int64], many: int) -> NDArray[np.int64]:
    """The ``numbers``, with zeros appended up to the length ``many``."""
    return np.pad(numbers, (0, many - len(numbers)))


def _least(program: RoleColumns, fixed: Fixed) -> NDArray[np.int64]:
    """(columns,) the least value of every column: that in ``fixed`` for patterns and replica sets, 0 for all others."""
    return np.concatenate([np.zeros(program.others, int), _padded(fixed.patterns, len(program.patterns)),
                           _padded(fixed.replica_sets, len(program.replica_sets))])

"""Diving: a whole-number solution by fixing columns of the linear program step by step.

Each step fixes columns that are integral or nearly so, and solves the linear program for the rest of the demand. If
that costs more GPUs, new patterns are priced for the rest; if these do not help, the step is undone and a smaller or
another one is tried. A dive that finds no further step begins again with fewer GPUs fixed. The last few GPUs are left
to the integer program.
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
    """(columns,) the least value of each column, and whether a plan of about the target price may use it."""

    least: NDArray[np.int64]
    kept: NDArray[np.bool_]


class Fixed(NamedTuple):
    """The least values of the first patterns and replica sets of a program; those added later have 0."""

    patterns: NDArray[np.int64]
    replica_sets: NDArray[np.int64]


def dive(columns: Generation, until: Deadline, draw: np.random.Generator, below: float) -> Iterator[Dive]:
    """Yield the results of dives; each leaves little to the integer program.

    Parameters
    ----------
    columns
        The columns, to which others are added.
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
    """The target price of a dive, in units, from the value of the linear program and the price of the best plan."""
    return float(math.ceil(units * (1 + SCHEDULE.close)) if below > units * (1 + SCHEDULE.fair) else math.ceil(units))


def _priced(columns: Generation, fixed: Fixed, goal: float) -> MasterDuals | None:
    """Solve the linear program with some columns fixed; if it costs more than ``goal``, again with new columns."""
    found = columns.program.relaxed(strict=True, least=_least(columns.program, fixed))
    if found is not None and columns.units(found) > goal and columns.price(found, SCHEDULE.slight, 0)[1]:
        return columns.program.relaxed(strict=True, least=_least(columns.program, fixed))
    return found


def _left(columns: Generation, at: MasterDuals, patterns: NDArray[np.float64], held: Fixed) -> float:
    """The cost of the patterns that are not fixed, in prices of the dearest GPU."""
    worth = np.array([at.slice_types[slice_type] for slice_type, _ in columns.program.patterns])
    return float((patterns - _padded(held.patterns, len(patterns))) @ worth)


def _nearly(parts: NDArray[np.float64], pace: float, noise: NDArray[np.float64], least: int,
            without: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns to round up: those nearest to integral, at most the fraction ``pace`` of all, at least ``least``."""
    rest = np.maximum(parts - np.floor(parts + SOLVER), 0.0)
    most = max(int(pace * rest.sum()), least)
    rank = rest + np.resize(noise, len(rest)) * (rest > SOLVER)
    rank[without] = 0.0
    largest = np.argsort(-rank, kind="stable")[:most]
    return largest[(rest[largest] >= SCHEDULE.half) | ((np.arange(len(largest)) < least) & (rank[largest] > SOLVER))]


def _taken(parts: NDArray[np.float64], up: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values of columns rounded down, those of the columns ``up`` rounded up."""
    whole = np.floor(parts + SOLVER).astype(int)
    whole[up] += 1
    return whole


def _padded(numbers: NDArray[np.int64], many: int) -> NDArray[np.int64]:
    """Numbers followed by zeros."""
    return np.pad(numbers, (0, many - len(numbers)))


def _least(program: RoleColumns, fixed: Fixed) -> NDArray[np.int64]:
    """(columns,) the least value of every column of a program."""
    return np.concatenate([np.zeros(program.others, int), _padded(fixed.patterns, len(program.patterns)),
                           _padded(fixed.replica_sets, len(program.replica_sets))])

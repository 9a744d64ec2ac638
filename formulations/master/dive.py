"""Diving finds a whole-number solution by fixing columns of the linear program step by step.

Each step fixes patterns whose values are integral or nearly so, and solves the linear program for the rest of the
demand. If the new value exceeds the target price, new patterns are priced for the rest. If they do not help, the step
is undone, and a smaller step or another pattern is tried. After several failures the dive begins again, with fewer GPUs
fixed and some random noise. The last few GPUs are left to the integer program. (Diving heuristics with column
generation: Sadykov et al. 2019.)
"""

import math

import numpy as np

from provision.formulations.master.columns import Chosen, Duals
from provision.formulations.master.generation import Generation
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SOLVER


def dive(columns: Generation, until: Deadline, draw: np.random.Generator, below: float) -> Chosen | None:
    """Dive again and again, until the integer program finds a whole-number solution at the end of a dive, which leaves
    at most one GPU to it; return the solution, None if none is found.

    Parameters
    ----------
    columns
        The patterns so far. Dives add further ones.
    until
        When to end.
    draw
        Random generator for the choice of patterns when a dive begins again.
    below
        The price of the best plan known, in units.
    """
    program, step = columns.program, float(columns.problem.dearest)
    held = start = tried = np.zeros(0, int)
    pace, failures, begun, noise, at = SCHEDULE.pace, 0, 0, np.zeros(1), program.relaxed()
    goal = 0.0 if at is None else max(columns.bound, _aim(columns.units(at), below))
    while at is not None and goal < below and not until.over:
        worth = np.array([at.slice_types[slice_type] for slice_type, _ in program.patterns])
        left = float((at.parts - _padded(held, len(worth))) @ worth)  # the cost of the patterns that are not fixed
        start = held if left >= SCHEDULE.few else start
        if left <= 1:
            least = _padded(held, len(worth))
            most = goal if goal + step >= below else goal + step
            useful = (at.reduced <= most / step - at.value + SOLVER) | (least > 0)
            chosen = program.integral(useful, least, min(SCHEDULE.whole_s, until.left_s))
            if chosen is not None:
                return chosen
            failures = SCHEDULE.again
        up = _nearly(at.parts, pace, noise, tried)
        fixed = np.floor(at.parts + SOLVER).astype(int)
        fixed[up] += 1
        found = _priced(columns, fixed, goal)
        if found is not None and columns.units(found) <= goal and left > 1:
            at, held, tried = found, fixed, tried[:0]
            continue
        failures, pace = failures + 1, pace / 4
        tried = np.concatenate([tried, up[:1]]) if len(up) == 1 else tried
        if failures > SCHEDULE.again:
            failures, pace, tried, begun = 0, SCHEDULE.pace, tried[:0], begun + 1
            held, noise = start, draw.uniform(0, SCHEDULE.noise, len(at.parts))
            if begun % 2 == 0 and goal + step < below:
                goal += step
        at = program.relaxed(least=held)
    return None


def _aim(units: float, below: float) -> float:
    """The target price of a dive, in units of price: the linear program's value ``units`` rounded up.

    If the price ``below`` of the best plan exceeds that value by more than the fraction ``SCHEDULE.fair``, the target
    is higher by the fraction ``SCHEDULE.close``: a dive to it succeeds more often.
    """
    return float(math.ceil(units * (1 + SCHEDULE.close)) if below > units * (1 + SCHEDULE.fair) else math.ceil(units))


def _priced(columns: Generation, fixed: Ints, goal: float) -> Duals | None:
    """The solution of the linear program with the patterns ``fixed``; None if it has none.

    If it costs more than ``goal``, patterns are priced, and it is solved again if there are new ones.
    """
    found = columns.program.relaxed(least=fixed)
    if found is not None and columns.units(found) > goal and columns.price(found, 0)[1]:
        return columns.program.relaxed(least=fixed)
    return found


def _nearly(parts: Floats, pace: float, noise: Floats, without: Ints) -> Ints:
    """The indices of patterns to round up: those whose fractional parts are largest.

    Their number is at most the fraction ``pace`` of the sum of all fractional parts, but at least 1. Patterns
    ``without`` are not rounded up.
    """
    rest = np.maximum(parts - np.floor(parts + SOLVER), 0.0)
    most = max(int(pace * rest.sum()), 1)
    rank = rest + np.resize(noise, len(rest)) * (rest > SOLVER)
    rank[without] = 0.0
    largest = np.argsort(-rank, kind="stable")[:most]
    return largest[(rest[largest] >= SCHEDULE.half) | ((np.arange(len(largest)) < 1) & (rank[largest] > SOLVER))]


def _padded(numbers: Ints, many: int) -> Ints:
    """The ``numbers``, with zeros appended up to the length ``many``."""
    return np.pad(numbers, (0, many - len(numbers)))

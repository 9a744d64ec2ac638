"""Plans by local search: given slices hold one pattern each, and two patterns at a time are exchanged for better ones.

A linear program mixes many patterns in fractions, and an integer program over thousands of patterns is slow. But once
the slices are given, and all patterns but two are kept, the best pair of patterns for the remaining demand is found at
once: the value of a pair is at most the sum of the values of its patterns. So pairs are tried by falling values until
this sum is too small. When no pair improves the choice, some patterns are replaced at random.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from provision.formulations.master.columns import RateColumns, Relaxed
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST

NOTHING = -1


class Demand(NamedTuple):
    """What the patterns of a plan must carry, and the number of replicas that they may have.

    ``carried`` (patterns, rows) are the fractions of rates and of least numbers of replicas that patterns provide.
    ``wanted`` (rows,) is what must be carried, and ``value`` (rows,) what it is worth to carry all of a row. ``number``
    (patterns, limited groups) are replicas, ``most`` (limited groups,) their largest numbers, and ``excess`` is the
    cost of each further replica.
    """

    carried: Floats
    wanted: Floats
    value: Floats
    number: Floats
    most: Floats
    excess: float


def exchanged(columns: RateColumns, found: Relaxed, patterns: Ints, slots: Ints, draw: np.random.Generator,
              until: Deadline) -> Ints | None:
    """Patterns that together carry the whole demand, one for each slot; None if none are found.

    Parameters
    ----------
    columns, found
        The known patterns, and a solution of the linear program over them.
    patterns
        The indices of the patterns to choose from.
    slots
        (slots,) the slice type of each slot. Each slice type must have patterns.
    draw
        The source of random numbers.
    until
        The deadline at which the search ends.
    """
    demand = _demand(columns, found, patterns, len(slots))
    of_slot = [np.flatnonzero(columns.slice_type[patterns] == one) for one in slots.tolist()]
    full, best = float(demand.wanted @ demand.value) * (1 - DUST), -np.inf
    chosen = kept = _filled(demand, np.full(len(slots), NOTHING), of_slot, draw)
    for _ in range(SCHEDULE.kicks):
        chosen, score = _climbed(demand, chosen, of_slot, draw, until)
        if score >= full:
            return patterns[chosen]
        if until.over:
            return None
        if score >= best:
            best, kept = score, chosen
        chosen = kept.copy()
        chosen[draw.permutation(len(slots))[: draw.integers(2, SCHEDULE.again)]] = NOTHING
        chosen = _filled(demand, chosen, of_slot, draw)
    return None


def drawn_slots(columns: RateColumns, found: Relaxed, counts: Sequence[int], gap: float, draw: np.random.Generator
                ) -> tuple[list[Ints], Ints]:
    """Partitions for some numbers of GPUs of each type: for each pool (partitions,) the number of GPUs, and the slice
    type of each of their slices.

    Each GPU gets a random partition among those whose slices are worth the most in the linear program, less the
    ``gap``.
    """
    partitions = []
    for pool, many in zip(columns.problem.pools, counts, strict=True):
        worth = pool.partitions @ found.slices
        near = np.flatnonzero(worth >= worth.max() - max(gap, 0.0))
        partitions.append(np.bincount(draw.choice(near, many), minlength=len(worth)))
    slices = sum((many @ pool.partitions for pool, many in zip(columns.problem.pools, partitions, strict=True)),
                 np.zeros(len(found.slices), int))
    return partitions, np.repeat(np.arange(len(slices)), slices)


def _demand(columns: RateColumns, found: Relaxed, patterns: Ints, slots: int) -> Demand:
    """The Demand of all workloads. Its values are those of the linear program, but none is 0, because the search would
    leave such rows uncarried.
    """
    number, asked, counted = columns.number[patterns], columns.asked_for, columns.counted
    value = np.append(found.per_rps * columns.asked_rps, found.bonus[asked] * columns.least[asked])
    value = np.maximum(value, SCHEDULE.fair * value.sum())
    carried = np.hstack([columns.part[patterns], number[:, asked] / columns.least[asked]])
    wanted = np.append(np.where(columns.asked_rps > 0, 1.0, 0.0), np.ones(len(asked)))
    return Demand(carried, wanted, value, np.ascontiguousarray(number[:, counted]), columns.most[counted],
                  float(value.sum()) / slots)


def _left(demand: Demand, chosen: Ints) -> tuple[float, Floats, Floats]:
    """The score of the chosen patterns, the remaining demand (rows,), and the replicas that are left (limited groups,).

    The score is the value of the demand that is met, less the cost of replicas beyond the limits.
    """
    taken = chosen[chosen != NOTHING]
    carried, number = demand.carried[taken].sum(axis=0), demand.number[taken].sum(axis=0)
    score = np.minimum(carried, demand.wanted) @ demand.value
    score -= demand.excess * np.maximum(number - demand.most, 0).sum()
    return float(score), np.maximum(demand.wanted - carried, 0.0), np.maximum(demand.most - number, 0.0)


def _filled(demand: Demand, chosen: Ints, of_slot: Sequence[Ints], draw: np.random.Generator) -> Ints:
    """The choice with a good pattern in each empty slot. Random factors make it a different one each time."""
    for slot in draw.permutation(np.flatnonzero(chosen == NOTHING)).tolist():
        _, needed, allowed = _left(demand, chosen)
        one = of_slot[slot]
        worth = np.minimum(demand.carried[one], needed) @ demand.value
        worth -= demand.excess * np.maximum(demand.number[one] - allowed, 0).sum(axis=1)
        chosen[slot] = one[np.argmax(worth * (1 - SCHEDULE.some * draw.random(len(one)) ** 2))]
    return chosen


def _climbed(demand: Demand, chosen: Ints, of_slot: Sequence[Ints], draw: np.random.Generator, until: Deadline
             ) -> tuple[Ints, float]:
    """Exchange two patterns at a time as long as that improves the score; return the choice and its score."""
    pairs = list(combinations(range(len(chosen)), 2))
    score, improved = _left(demand, chosen)[0], True
    while improved and not until.over:
        improved = False
        for at in draw.permutation(len(pairs)).tolist():
            pair, others = list(pairs[at]), chosen.copy()
            others[pair] = NOTHING
            rest, needed, allowed = _left(demand, others)
            first, second = (of_slot[one] for one in pair)
            found = best_pair(demand, first, second, needed, allowed, score * (1 + DUST) - rest, SCHEDULE.visits)
            if found[0] != NOTHING:
                chosen, improved = others, True
                chosen[pair] = found
                score = _left(demand, chosen)[0]
            if until.over or score >= float(demand.wanted @ demand.value) * (1 - DUST):
                return chosen, score
    return chosen, score


@compiled
def best_pair(demand: Demand, first: Ints, second: Ints, needed: Floats, allowed: Floats, floor: float, visits: int
              ) -> tuple[int, int]:
    """Find the two patterns, one of ``first`` and one of ``second``, that together have the highest score (as in
    ``_left``), if it is above ``floor``. Returns their indices, or NOTHING twice if no pair is above it.

    Parameters
    ----------
    demand
        The Demand.
    first, second
        The indices of patterns.
    needed, allowed
        The remaining demand (rows,), and the replicas that are left (limited groups,).
    floor
        The score that the pair must exceed.
    visits
        The number of pairs after which the best pair so far is returned.
    """
    carried, number, value, excess = demand.carried, demand.number, demand.value, demand.excess
    alone, other = _alone(demand, first, needed, allowed), _alone(demand, second, needed, allowed)
    most, best, pair = other.max(), floor, (NOTHING, NOTHING)
    kept, partners = np.flatnonzero(alone > floor - most), np.flatnonzero(other > floor - alone.max())
    kept, partners = kept[np.argsort(-alone[kept])], partners[np.argsort(-other[partners])]
    for one in kept:
        if alone[one] + most <= best or visits <= 0:
            break
        for two in partners:
            if alone[one] + other[two] <= best:
                break
            visits -= 1
            score = 0.0
            for row in range(len(needed)):
                score += value[row] * min(carried[first[one], row] + carried[second[two], row], needed[row])
            for row in range(len(allowed)):
                replicas = number[first[one], row] + number[second[two], row]
                score -= excess * max(replicas - allowed[row], 0.0)
            if score > best:
                best, pair = score, (first[one], second[two])
    return pair


@inner
def _alone(demand: Demand, patterns: Ints, needed: Floats, allowed: Floats) -> Floats:
    """(patterns,) the scores of patterns alone."""
    score, carried, number, value = np.zeros(len(patterns)), demand.carried, demand.number, demand.value
    for at in range(len(patterns)):
        one = patterns[at]
        for row in range(len(needed)):
            score[at] += value[row] * min(carried[one, row], needed[row])
        for row in range(len(allowed)):
            score[at] -= demand.excess * max(number[one, row] - allowed[row], 0.0)
    return score

"""inferno's greedy algorithm: every service gets one type of accelerator. Services are handled by priority, then by
regret, the largest regret first. The *regret* of a service is the difference in cost between its best and its next
choice. A service that finds too few accelerators left goes on to its next choice and is put back into the queue.
Source: inferno's public description, its limited mode.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from provision.formulations.search.segments import Segments, SliceType
from provision.heuristics.melange.whole_gpus import FEATURES, Chosen, plan_whole_gpus
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search

Pool = TypeVar("Pool", int, str)


class Choice(NamedTuple, Generic[Pool]):
    """A choice for a service: its cost, the number of accelerators (``units``) that it takes from a pool, and the
    caller's index (``what``).
    """

    cost: float
    units: int
    pool: Pool
    what: int


def choose(choices: Sequence[Sequence[Choice[Pool]]], priorities: Sequence[int], capacity: Mapping[Pool, float]
           ) -> list[Choice[Pool] | None]:
    """The choice that every service gets; None if too few accelerators are left for each of its choices.

    Parameters
    ----------
    choices
        The choices of every service.
    priorities
        The priority of every service; the smallest number comes first.
    capacity
        The number of accelerators in each pool.
    """
    left = dict(capacity)
    open_: dict[int, list[Choice[Pool]]] = {at: sorted(found, key=lambda one: one.cost)
                                            for at, found in enumerate(choices)}
    given: list[Choice[Pool] | None] = [None] * len(choices)
    while open_:
        at = min(open_, key=lambda one: (priorities[one], *_urgency(open_[one])))
        best = open_[at].pop(0) if open_[at] else None
        if best is None or left.get(best.pool, 0) >= best.units:
            given[at] = best
            del open_[at]
            if best is not None:
                left[best.pool] -= best.units
    return given


def _urgency(found: Sequence[Choice[Pool]]) -> tuple[float, float]:
    """The sort key of a service: the largest regret comes first, and among equal regrets the most expensive first
    choice.
    """
    if len(found) < 2:
        return -math.inf, -found[0].cost if found else 0.0
    return found[0].cost - found[1].cost, -found[0].cost


def replicas(rate_rps: float, each_rps: float) -> int:
    """The number of replicas that carry a rate, if each carries ``each_rps``; at least 1."""
    return max(1, math.ceil(rate_rps / each_rps * (1 - TOLERANCE)))


def plan(instance: Instance, search: Search) -> Outcome:
    """Plan an instance with whole GPUs of one type for every workload."""
    def whole_gpus(segments: Segments, whole: list[int]) -> Chosen:
        choices = [
            [_choice(instance, segments.slice_types[kind], at,
                     replicas(max(instance.planned_rps(one), TOLERANCE), rates[kind]), one.min_replicas)
             for at, kind in enumerate(whole) if rates[kind] > 0]
            for one, rates in zip(instance.workloads, segments.throughput_rps, strict=True)
        ]
        counts = {at: math.inf if entry.count is None else entry.count for at, entry in enumerate(instance.fleet)}
        given = choose(choices, [0] * len(choices), counts)
        lacking = [one.name for one, found in zip(instance.workloads, given, strict=True) if found is None]
        if lacking:
            return None, f"inferno found no single type left for {', '.join(lacking)}"
        gpus = np.zeros((len(given), len(whole)), np.int64)
        for at, found in enumerate(given):
            if found is not None:
                gpus[at, found.what] = found.units
        return gpus, ""

    return plan_whole_gpus(instance, search, "inferno", whole_gpus)


def _choice(instance: Instance, kind: SliceType, at: int, many: int, least: int) -> Choice[int]:
    units = max(many, least)
    return Choice(units * objective_of(instance).weight(instance.fleet[kind.entry]), units, kind.entry, at)


METHODS = (
    Method(
        name="inferno",
        summary="inferno's greedy: a GPU type per workload, those first that would lose most by another",
        run=plan,
        source="llm-inferno (its public description)",
        features=FEATURES,
    ),
)

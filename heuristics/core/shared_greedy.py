"""Greedy under interference: hardest replicas first, each on the GPU whose total units grow least.

Unlike in iGniter (TPDS 2022, Algorithm 1), every trial chooses the batches of all replicas on the GPU again. Several
weights of free units against growth are tried, and the best packing is kept. With several GPU types, a new GPU is of
the type on which the replica's units cost least; each type is also tried as the preferred one wherever it can serve.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np

from provision.formulations.pricing.mps.shared_plans import Pattern, SharedProblem, plan_shared, shared_problem
from provision.formulations.pricing.mps.tables import least_units
from provision.heuristics.core.schedule import GreedySchedule
from provision.heuristics.core.shared_packing import Costs, Packing, Types, empty_packing, pack
from provision.heuristics.igniter.igniter import METHODS as IGNITER
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Search

SCHEDULE = GreedySchedule()
IGNITERS_RULE = {"latency_budget": "half_slo"}
"""Of iGniter's own plan where throughput counts; other rules for that know nothing but throughput."""


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance whose workloads share GPUs; see the module's text."""
    def search(problem: SharedProblem) -> tuple[list[Pattern], dict[str, Any]]:
        return packed(problem, control.start), {"status": "feasible", "termination": "completed"}

    return plan_shared(instance, control, "greedy", search, shared_problem)


def packed(problem: SharedProblem, start: Plan | None = None) -> list[Pattern]:
    """The cheapest of several packings, iGniter's plans, and the plan to start with, as patterns."""
    slice_types, costs = len(problem.fleet.pools), costs_of(problem)
    leans = np.where(np.eye(slice_types + 1, slice_types, -1), SCHEDULE.foremost, 1.0)[
        : slice_types + 1 if slice_types > 1 else 1
    ]
    with ThreadPoolExecutor(SCHEDULE.threads) as pool:
        tried = product(leans, SCHEDULE.eagerness)
        found = list(pool.map(lambda one: _pack(problem, costs._replace(lean=one[0]), one[1]), tried))
    found += [patterns for plan in (start, *_igniter(problem)) if (patterns := problem.patterns(plan))]
    return min(found, key=problem.cost)


def patterns_in(packings: Sequence[Packing]) -> list[Pattern]:
    """The patterns of packings."""
    return [(slice_type, tuple(sorted(members[:size]))) for slice_type, packing in enumerate(packings)
            for members, size in zip(packing.members.tolist(), packing.size.tolist(), strict=True) if size]


def costs_of(problem: SharedProblem) -> Costs:
    """The Costs, with prices of up to twice as many GPUs as replicas, since a search keeps spare GPUs."""
    pools, dearest, most = problem.fleet.pools, problem.fleet.dearest, 2 * len(problem.classes.parts)
    return Costs(
        least=np.array([least_units(pool.tables) for pool in pools]),
        rent=np.array([[pool.cost(many) / dearest for many in range(most + 2)] for pool in pools]),
        worth=np.array([pool.worth / dearest for pool in pools]),
        lean=np.ones(len(pools)),
    )


def types_of(problem: SharedProblem) -> Types:
    """PointTables of every GPU type."""
    return tuple(pool.tables for pool in problem.fleet.pools)


def _pack(problem: SharedProblem, costs: Costs, eager: float) -> list[Pattern]:
    types = types_of(problem)
    shares = costs.least / np.array([[tables.limit] for tables in types])
    hardest = np.argsort(-shares.min(axis=0), kind="stable")
    order = np.repeat(hardest, problem.classes.counts[hardest])
    packings = tuple(empty_packing(len(order), tables) for tables in types)
    pack(types, packings, costs, order, eager)
    return patterns_in(packings)


def _igniter(problem: SharedProblem) -> Iterator[Plan | None]:
    """iGniter's plan on each GPU type, None where it breaks SLOs; no plans for many workloads or for variants."""
    instance = problem.instance
    if len(instance.workloads) > SCHEDULE.igniter_up_to or "variants" in needs(instance):
        return
    for pool in problem.fleet.pools:
        if (least_units(pool.tables) <= pool.tables.limit).all():
            entry = next(entry for entry in instance.fleet if entry.gpu == pool.gpu)
            alone = instance.replace(
                fleet=(entry.model_copy(update={"count": None}),), objective="min_gpus",
                policy=instance.policy.model_copy(update=IGNITERS_RULE if instance.objective == THROUGHPUT else {}),
            )
            outcome = IGNITER[0].run(alone, Search())
            yield outcome.plan if outcome.status == "feasible" else None

"""Greedy under interference: hardest replicas first, each where it makes the units of all grow least.

Unlike iGniter's (TPDS 2022, Algorithm 1) every trial chooses the batches of all on the GPU anew. Several weights of
fullness against growth are tried, and the best packing kept. Of several GPU types, a new GPU is of the type on which
the replica's units cost least; also tried is each type wherever it can serve.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from provision.heuristics.core.shared_packing import Costs, Packing, empty_packing, pack
from provision.heuristics.igniter.igniter import METHODS as IGNITER
from provision.models.contents.interference.shared_plans import Pattern, SharedProblem, plan_shared, shared_problem
from provision.models.contents.interference.tables import Tables, least_units
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Search

EAGERNESS = (0.01, 0.1, 0.3, 1.0)
"""Weights of the units that a GPU has left, against the units by which it grows."""
FOREMOST = 1e-6
"""Factor for the price of a type that is tried wherever it can serve."""
IGNITERS_RULE = {"latency_budget": "half_slo"}
"""Of iGniter's own plan where throughput counts; other rules for that know nothing but throughput."""
IGNITER_UP_TO = 150
"""Up to so many workloads iGniter's own plan is made too, and the better one returned."""


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance whose workloads share GPUs; see the module's text."""
    def search(problem: SharedProblem, _: float) -> tuple[list[Pattern], dict[str, Any]]:
        return packed(problem, control.start), {"status": "feasible", "termination": "completed"}

    return plan_shared(instance, "greedy", search, shared_problem)


def packed(problem: SharedProblem, start: Plan | None = None) -> list[Pattern]:
    """The cheapest patterns at hand, those of a plan to start with among them."""
    kinds, costs = len(problem.fleet.stocks), costs_of(problem)
    leans = np.where(np.eye(kinds + 1, kinds, -1), FOREMOST, 1.0)[: kinds + 1 if kinds > 1 else 1]
    found = [_pack(problem, costs._replace(lean=lean), eager) for lean in leans for eager in EAGERNESS]
    found += [patterns for plan in (start, *_igniter(problem)) if (patterns := problem.patterns(plan))]
    return min(found, key=problem.cost)


def patterns_in(packings: Sequence[Packing]) -> list[Pattern]:
    """The patterns of packings."""
    return [(kind, tuple(sorted(members[:size]))) for kind, packing in enumerate(packings)
            for members, size in zip(packing.members.tolist(), packing.size.tolist(), strict=True) if size]


def costs_of(problem: SharedProblem) -> Costs:
    """The Costs of up to as many GPUs as there are replicas, or twice as many, as a search may need."""
    stocks, dearest, most = problem.fleet.stocks, problem.fleet.dearest, 2 * len(problem.classes.parts)
    return Costs(
        least=np.array([least_units(stock.tables) for stock in stocks]),
        rent=np.array([[stock.cost(many) / dearest for many in range(most + 2)] for stock in stocks]),
        worth=np.array([stock.worth / dearest for stock in stocks]),
        lean=np.ones(len(stocks)),
    )


def types_of(problem: SharedProblem) -> tuple[Tables, ...]:
    """Tables of every GPU type."""
    return tuple(stock.tables for stock in problem.fleet.stocks)


def _pack(problem: SharedProblem, costs: Costs, eager: float) -> list[Pattern]:
    types = types_of(problem)
    shares = costs.least / np.array([[tables.limit] for tables in types])
    hardest = np.argsort(-shares.min(axis=0), kind="stable")
    order = np.repeat(hardest, problem.classes.counts[hardest])
    packings = tuple(empty_packing(len(order), tables) for tables in types)
    pack(types, packings, costs, order, eager)
    return patterns_in(packings)


def _igniter(problem: SharedProblem) -> Iterator[Plan | None]:
    """iGniter's plans on each GPU type; none where they are dear to make or break SLOs, nor of variants."""
    instance = problem.instance
    if len(instance.workloads) > IGNITER_UP_TO or "variants" in needs(instance):
        return
    for stock in problem.fleet.stocks:
        if (least_units(stock.tables) <= stock.tables.limit).all():
            entry = next(entry for entry in instance.fleet if entry.gpu == stock.gpu)
            alone = instance.replace(
                fleet=(entry.model_copy(update={"count": None}),), objective="min_gpus",
                policy=instance.policy.model_copy(update=IGNITERS_RULE if instance.objective == THROUGHPUT else {}),
            )
            outcome = IGNITER[0].run(alone, Search())
            yield outcome.plan if outcome.status == "feasible" else None

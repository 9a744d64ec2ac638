"""Greedy under interference: hardest replicas first, each where it makes the units of all grow least.

Unlike iGniter's (TPDS 2022, Algorithm 1) every trial chooses the batches of all on the GPU anew. Several weights of
fullness against growth are tried, and the best packing kept.
"""

import numpy as np

from provision.heuristics.igniter import METHODS as IGNITER
from provision.heuristics.shared_packing import empty_packing, pack
from provision.models.method import Control
from provision.models.shared_plans import plan_shared

EAGERNESS = (0.01, 0.1, 0.3, 1.0)
"""Weights of the units that a GPU has left, against the units by which it grows."""
IGNITER_UP_TO = 150
"""Up to so many workloads iGniter's own plan is made too, and the better one returned."""


def solve(instance, control):
    """Plan an instance whose workloads share GPUs; see the module's text."""
    def search(problem, _):
        return packed(problem, control.start), {"status": "feasible", "termination": "completed"}

    return plan_shared(instance, "greedy", search)


def packed(problem, start=None):
    """The best patterns at hand, those of a plan to start with among them."""
    found = [patterns_in(packing) for packing in map(lambda eager: _pack(problem, eager), EAGERNESS)]
    found += [patterns for plan in (start, _igniter(problem.instance)) if (patterns := problem.patterns(plan))]
    return min(found, key=len)


def patterns_in(packing):
    """The patterns of a packing."""
    rows = zip(packing.members.tolist(), packing.size.tolist(), strict=True)
    return [tuple(sorted(members[:size])) for members, size in rows if size]


def least_units(tables):
    """(classes,) units that each needs at least."""
    return tables.units[tables.first[:, 0]]


def _pack(problem, eager):
    tables, least = problem.tables, least_units(problem.tables)
    hardest = np.argsort(-least, kind="stable")
    order = np.repeat(hardest, problem.classes.counts[hardest])
    packing = empty_packing(len(order), tables)
    pack(tables, packing, order, least, eager)
    return packing


def _igniter(instance):
    """iGniter's plan, None where it is dear to make or breaks SLOs."""
    if len(instance.workloads) > IGNITER_UP_TO:
        return None
    outcome = IGNITER[0].run(instance, Control())
    return outcome.plan if outcome.status == "feasible" else None

"""Replanning: from a running plan to a plan for new demand, with the least sum of cost and disturbance, proven.

The integer program (``program``) is exact if all patterns of slices can be listed (``options``). This is possible for
slices
of one replica each, for shared MIG slices and whole GPUs under interference with one replica of each workload, for
temporal sharing, and for other sharing with few operating points. In other cases the program gives a bound and a plan,
or no answer at all.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from provision.formulations.replanning.model import Model, Weights
from provision.formulations.replanning.options import options_of
from provision.formulations.replanning.program import Program
from provision.formulations.replanning.running import running
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import best_segments
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import RELAXED
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

ALLOWED = ("batches", "replicas", "slices")
"""What may change: only batch sizes and rates; also replicas, with new slices and new GPUs; or everything."""

LISTED = 0.8
"""The fraction of the time limit in which all patterns must be listed."""


class Replanned(NamedTuple):
    """The status, the lower bound on the sum of cost and disturbance, and the new plan (None if there is none)."""

    status: str
    bound: float
    plan: Plan | None


def replan_counts(
    instance: Instance, plan: Plan, weights: Weights, holds: Callable[[Plan], bool], limit_s: float = 60.0,
    gap: float = 1e-6, known: float = np.inf,
) -> Replanned:
    """Replan with the least sum of cost and disturbance.

    Parameters
    ----------
    instance
        The new problem.
    plan
        The running plan.
    weights
        The costs of disturbance, and what may change.
    holds
        Returns whether a plan is feasible by the exact numbers.
    limit_s
        Time limit in seconds.
    gap
        Relative gap at which the solver stops.
    known
        The sum of cost and disturbance of a known plan.

    Returns
    -------
    Replanned
        The status is unknown and the bound 0 if patterns of slices cannot be listed.

    Raises
    ------
    InputError
        If slices of the running plan do not fit on their GPU together.
    """
    until, listed = Deadline(limit_s), Deadline(LISTED * limit_s)
    segments = best_segments(instance)
    now = running(instance, segments, plan)
    if problems := unservable(instance, segments):
        alone = not any(instance.sharing_files(entry.gpu) for entry in instance.fleet)
        return Replanned("infeasible: " + "; ".join(problems) if alone else "unknown", 0.0, None)
    options = options_of(instance, segments, now, listed)
    if options is None:
        return Replanned("unknown", 0.0, None)
    model = Model(instance, segments, now, options, weights, known)
    if weights.allow != "slices" and model.outside:
        why = f"{model.outside} slices stand on GPUs that the fleet has not, and {weights.allow} destroys none"
        return Replanned(f"infeasible: {why}", 0.0, None)
    if model.many:
        return Replanned("unknown", 0.0, None)
    bounded = Program(model, bounds=True).solve(until.left_s / 2, gap) if model.loose else None
    found = Program(model).solve(until.left_s, gap)
    new = model.plan(found.choice, holds)
    if found.choice is not None and new is None:
        found = Program(model, share=1 + RELAXED).solve(until.left_s, gap)._replace(bound=found.bound)
        new = model.plan(found.choice, holds)
        found = found._replace(status="unknown" if new is None else "feasible")
    if bounded is None:
        return Replanned(found.status, found.bound, new)
    if bounded.status == "infeasible":
        return Replanned("infeasible", 0.0, None)
    return Replanned("unknown" if new is None else "feasible", bounded.bound, new)

"""Plans within memory: that of this machine, and that of shared GPUs.

A limit on the segments of a plan gives a message for a mistyped rate instead of exhausting this machine's memory.

No search under interference knows memory, which is a further resource. So a method plans without it, and its bound
stays valid. If its plan needs more memory than a GPU has, the instance is planned again with replicas whose part of the
memory is no larger than their part of the SMs: any set of such replicas fits. The same happens if there is no plan at
all, because some policies (`survive`, even replicas) keep only valid plans.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.performance.memory import SharedMemoryData
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.memory import states_memory
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.solving.schedule import REPLAYS
from provision.solving.staged import planned
from provision.solving.steps import valid_for
from provision.verification.verify import verify

MOST_SEGMENTS, MOST_OF_ONE = 3_000_000, 30_000
"""The most segments of an instance, and of one workload: a rate that needs more is a slip."""


def within_memory(
    instance: Instance, method: Method, search: Search, outcome: Outcome, end: Deadline
) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome with a plan that fits the memory, and a note if it was planned again.

    If no such plan is found until ``end``, the outcome has no plan and its status is unknown.
    """
    if not states_memory(instance) or outcome.termination == "stopped":
        return outcome, ()
    if outcome.plan is not None:
        violations = verify(instance, outcome.plan).violations
        if not violations or any(one.kind != "memory" for one in violations):
            return outcome, ()
        why = violations[0].message
    elif outcome.status == "unknown":
        why = "none of the plans that were tried holds, perhaps for memory"
    else:
        return outcome, ()
    narrow = instance.replace(performance=[
        data.within_share() if isinstance(data, SharedMemoryData) else data for data in instance.performance])
    again = planned(method, narrow, search.apart().anew(time_limit_s=max(end.left_s, REPLAYS.least_plan_s)))
    note = f"{why}; planned again with no larger part of the memory than of the SMs per replica"
    plan = valid_for(instance, again.plan)
    if plan is None:
        return replace(outcome, plan=None, status="unknown", termination="completed",
                       reason=f"no plan within the memory was found: {why}"), (note,)
    return replaced(instance, outcome, plan), (note,)


def replaced(instance: Instance, outcome: Outcome, plan: Plan) -> Outcome:
    """The outcome with another plan. The bound stays the same, and the status is adapted to the new plan."""
    objective = objective_of(instance)
    proved = objective.proved(objective.value(plan), outcome.bound)
    return replace(outcome, plan=plan, status="optimal" if proved else "feasible",
                   termination="proved" if proved else "completed" if outcome.termination == "proved"
                   else outcome.termination)


def check_size(instance: Instance) -> None:
    """Refuse an instance that needs more than MOST_SEGMENTS segments, or MOST_OF_ONE for one workload.

    Raises
    ------
    InputError
        If it needs more. The message names the workload that needs the most segments.
    """
    table = best_segments(instance).throughput_rps
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    useful = np.minimum(table.max(axis=1, initial=0), cap_rps(instance))
    needed = np.divide(rate, useful, out=np.zeros_like(rate), where=useful > 0)
    needed = np.maximum(needed, [one.min_replicas for one in instance.workloads])
    if needed.sum() <= MOST_SEGMENTS and needed.max(initial=0) <= MOST_OF_ONE:
        return
    most = int(needed.argmax())
    workload = instance.workloads[most]
    raise InputError(
        f"{instance.name}: workloads[{most}].rate_rps: {workload.rate_rps:g} requests/s of {workload.name} need "
        f"about {needed[most]:.3g} slices; at most {MOST_OF_ONE:,} for a workload and {MOST_SEGMENTS:,} for an "
        "instance are planned at once; lower the rate, raise max_share_per_gpu, or split the instance"
    )

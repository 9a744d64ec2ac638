"""Finds, among plans of the same cost, a plan that could carry much extra traffic; and how much less traffic a fleet
that is too small could carry.

Under half_slo a plan may run its replicas at full throughput, where queues of random arrivals grow without limit. So
the spare capacity of the plan's GPUs is divided among all workloads: bisection finds the largest headroom, the same for
all workloads, with which greedy still finds a plan of the same cost.
"""

import math
from collections.abc import Callable

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.policy import MOST_HEADROOM
from provision.models.problem.search import Search
from provision.solving.schedule import SCHEDULE
from provision.solving.steps import GREEDY, valid_for


def with_slack(instance: Instance, plan: Plan, bound: float | None, control: Search) -> Plan:
    """A plan of the same cost with more slack, or the plan itself.

    Parameters
    ----------
    instance, plan, bound
        The problem, its best plan, and a proven bound on the objective. It holds with more traffic too, so greedy may
        end at a plan of this cost.
    control
        The Search, whose time limit ends the search for slack.
    """
    best, value = [plan], objective_of(instance).value

    def fits(extra: float) -> bool:
        found = _at(instance, extra, control.apart().anew(bound=bound))
        if found is None or value(found) > value(plan):
            return False
        best.append(found)
        return True

    _largest(control, fits)
    return best[-1]


def _largest(control: Search, fits: Callable[[float], bool]) -> float:
    """The largest number up to 1 that was found to fit, by bisection; 0 if none was."""
    low, high = 0.0, 1.0
    for _ in range(SCHEDULE.slack_steps):
        if not control.left_s:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def what_fits(instance: Instance, control: Search) -> str:
    """How to go on after "the fleet is too small": the largest part of all rates for which greedy finds a plan. Empty
    if it finds none, if it cannot plan the instance, or for workflows, whose bursts it does not plan for.
    """
    if instance.workflows:
        return ""

    def fits(part: float) -> bool:
        rates = [one.model_copy(update={"rate_rps": one.rate_rps * part}) for one in instance.workloads]
        few = instance.replace(workloads=rates)
        return valid_for(few, GREEDY(few, control.apart()).plan) is not None

    low = _largest(control, fits)
    return f"; all rates at {math.floor(1000 * low) / 10:g} % of what is asked would fit" if low else ""


def _at(instance: Instance, extra: float, control: Search) -> Plan | None:
    """A plan that could carry traffic higher by the fraction ``extra``, but with the stated rates routed to its
    replicas; None if none is found.
    """
    headroom = (1 + instance.policy.headroom) * (1 + extra) - 1
    if headroom > MOST_HEADROOM:
        return None
    found = GREEDY(instance.with_policy(headroom=headroom), control)
    plan = found.plan and found.plan.with_rates(dict.fromkeys(instance.workload, 1 / (1 + extra)))
    return valid_for(instance, plan)


def wants_slack(instance: Instance, search: Search) -> bool:
    """Whether to look for a plan with slack.

    A plan of most throughput has no slack. With shared slices there is no search for slack either, because greedy,
    which does it, does not share slices.
    """
    asked = search.parameters.get("slack", "yes")
    if asked not in ("yes", "no"):
        raise InputError(f"slack={asked}: should be yes or no")
    return asked == "yes" and not needs(instance) & {"share_slices", "max_throughput"}

"""Finds, among plans of the same cost, a plan that could carry much extra traffic; and how much less traffic a fleet
that is too small could carry.

Under half_slo a plan may run its replicas at full throughput, where queues of random arrivals grow without limit. So
the spare capacity of the plan's GPUs is divided among all workloads: bisection finds the largest headroom, the same for
all workloads, with which a quick method still finds a plan of the same cost.
"""

import math
from collections.abc import Callable

from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.policy import MOST_HEADROOM
from provision.models.problem.search import Outcome, Search
from provision.verification.verify import verify

WIDEST, BISECTION_STEPS = 1.0, 7
"""The largest headroom that is tried, and the number of bisection steps."""
MOST_WITH_SLACK = 200
"""The most workloads for which slack is sought. With more workloads, the method is no longer quick."""


def with_slack(instance: Instance, plan: Plan, bound: float | None, step: Callable[[Instance, Search], Outcome],
               control: Search) -> Plan:
    """A plan of the same cost with more slack, or the plan itself.

    Parameters
    ----------
    instance, plan, bound
        The problem, its best plan, and a proven bound on the objective. It holds with more traffic too, so a quick
        method may end at a plan of this cost.
    step
        The entry function of a quick method; it is called several times.
    control
        The Search, whose time limit ends the search for slack.
    """
    low, high, best = 0.0, WIDEST, plan
    for _ in range(BISECTION_STEPS if len(instance.workloads) <= MOST_WITH_SLACK else 0):
        if not control.left_s:
            break
        middle = (low + high) / 2
        found = _at(instance, middle, step, control.apart().anew(bound=bound))
        if (
            found is not None
            and objective_of(instance).value(found) <= objective_of(instance).value(plan)
            and verify(instance, found).ok
        ):
            low, best = middle, found
        else:
            high = middle
    return best


def what_fits(instance: Instance, method: Method, control: Search) -> str:
    """What to add to a sentence which says that the fleet is too small: the largest part of all rates for which a quick
    method finds a plan, by bisection; empty if the method cannot plan the instance, or if it has workflows, whose
    bursts the method does not plan for.
    """
    low, high, refused = 0.0, 1.0, needs(instance) - method.features or instance.workflows
    for _ in range(0 if refused or len(instance.workloads) > MOST_WITH_SLACK else BISECTION_STEPS):
        if not control.left_s:
            break
        part = (low + high) / 2
        rates = [one.model_copy(update={"rate_rps": one.rate_rps * part}) for one in instance.workloads]
        found = method.run(few := instance.replace(workloads=rates), control.apart()).plan
        low, high = (low, part) if found is None or not verify(few, found).ok else (part, high)
    return f"; all rates at {math.floor(1000 * low) / 10:g} % of what is asked would fit" if low else ""


def _at(instance: Instance, extra: float, step: Callable[[Instance, Search], Outcome], control: Search) -> Plan | None:
    """A plan that could carry traffic higher by the fraction ``extra``, but with the stated rates routed to its
    replicas; None if none is found.
    """
    headroom = (1 + instance.policy.headroom) * (1 + extra) - 1
    if headroom > MOST_HEADROOM:
        return None
    found = step(instance.with_policy(headroom=headroom), control)
    return None if found.plan is None else _scaled(found.plan, instance, 1 / (1 + extra))


def _scaled(plan: Plan, instance: Instance, factor: float) -> Plan:
    """The plan with all rates multiplied by a factor, labelled as a plan of the instance."""
    scaled = plan.with_replicas(lambda one: one.model_copy(update={"rate_rps": one.rate_rps * factor}))
    return scaled.model_copy(update={"digest": instance.digest, "instance": instance.name})

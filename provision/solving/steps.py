"""What steps of planning have in common: a method that may not be able to plan the instance, and a plan of another
instance that may not be valid for it.
"""

from collections.abc import Callable
from functools import wraps

from provision.models.base.errors import UnsupportedError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.verification.verify import verify

Step = Callable[[Instance, Search], Outcome]
"""Plans an instance."""


def where_able(method: Method) -> Step:
    """A method as a step. If the method cannot plan the instance, its outcome is empty."""
    @wraps(method.run)
    def step(instance: Instance, search: Search) -> Outcome:
        try:
            method.check(instance)
            return method.run(instance, search)
        except UnsupportedError as error:
            return Outcome("unknown", "completed", reason=str(error))

    return step


def valid_for(instance: Instance, plan: Plan | None) -> Plan | None:
    """A plan of another instance as a plan of this one; None if the verifier refuses it here, or if there is none."""
    return instance.adopted(plan) if plan is not None and verify(instance, plan).ok else None


def one_gpu(instance: Instance) -> float:
    """What one GPU of the cheapest type adds to the objective, which every plan needs; 0 if no workload has requests,
    or if the objective is the most throughput.
    """
    served = any(one.rate_rps > 0 for one in instance.workloads) and instance.objective != THROUGHPUT
    return min(map(objective_of(instance).weight, instance.fleet)) if served else 0.0

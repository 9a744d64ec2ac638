"""What a session keeps between solves of instances that differ in their demand: columns, prices and the last plan.

Everything is named by what it describes (a slice type, a demand on a replica), not by indices of one instance, so that
it can be used for another. Nothing that is kept decides whether a plan is feasible or a bound valid: prices prove their
bound anew, and patterns of demands that the new instance lacks are checked again.
"""

from collections import Counter
from dataclasses import dataclass, field

from provision.models.plans.plan import Plan, Replica, carried_rps
from provision.models.problem.instance import Instance

ALIKE = 0.5
"""The fraction of an instance's demands that must be those of the kept columns; with fewer these do not help."""
SliceKey = tuple[str, bool, str]
"""A slice type: the GPU type, whether MIG is on, and the profile."""
Demand = tuple[tuple[str, ...], float, float]
"""A demand on a replica: the models that may run, the SLO in ms, the rate in requests/s."""
DemandClass = tuple[tuple[str, ...], float]
"""The models and the SLO of a Demand."""


@dataclass
class KeptColumns:
    """Columns and prices of the last solve.

    Attributes
    ----------
    instance
        The Instance to which the columns belong; None if there are no columns.
    plan
        The best plan of the last solve.
    patterns
        By slice type, patterns as the demands of their replicas.
    slice_prices, prices
        The prices of slice types and of demands that proved the best bound.
    effort
        The effort of pricing that was needed.
    """

    instance: Instance | None = None
    plan: Plan | None = None
    patterns: dict[SliceKey, set[tuple[Demand, ...]]] = field(default_factory=dict)
    slice_prices: dict[SliceKey, float] = field(default_factory=dict)
    prices: dict[Demand, float] = field(default_factory=dict)
    effort: int = 0

    def fits(self, instance: Instance) -> bool:
        """Whether there are columns, and they are of an instance with the same data, policy, GPU types and objective.

        Prices and counts of GPUs may differ, and up to half of the workloads.
        """
        of = self.instance
        return bool(self.prices) and of is not None and (
            of.performance == instance.performance and of.policy == instance.policy
            and of.objective == instance.objective and of.shared_traffic == instance.shared_traffic
            and _types(of) == _types(instance)
            and (_demands(of) & _demands(instance)).total() >= ALIKE * len(instance.workloads))

    def plan_for(self, instance: Instance) -> Plan | None:
        """The kept plan with the rates of another instance, without workloads that it lacks; it need not be valid."""
        if self.plan is None:
            return None
        carried = carried_rps(self.plan.gpus)
        factor = {one.name: instance.planned_rps(one) / carried[one.name] for one in instance.workloads
                  if carried[one.name] > 0}

        def scaled(one: Replica) -> Replica | None:
            known = one.workload in factor
            return one.model_copy(update={"rate_rps": one.rate_rps * factor[one.workload]}) if known else None

        return instance.plan_of(self.plan.method or "", self.plan.with_replicas(scaled).gpus)


def _demands(instance: Instance) -> Counter[Demand]:
    """How often each demand is stated."""
    return Counter((one.models, one.slo_ms, instance.planned_rps(one)) for one in instance.workloads)


def _types(instance: Instance) -> list[tuple[str, bool, bool]]:
    """The GPU types of a fleet, with MIG and MPS."""
    return [(entry.gpu, entry.partitioned, entry.mps) for entry in instance.fleet]

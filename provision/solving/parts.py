"""Narrower instances, all of whose plans hold for the instance itself."""

from collections.abc import Iterator

import numpy as np

from provision.models.contents.alone.segments import best_segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs


def parts_of(instance: Instance) -> Iterator[Instance]:
    """The instance without shared slices, and on every GPU type of a mixed fleet that can run all workloads alone."""
    if instance.policy.share_slices:
        yield instance.with_policy(share_slices=False)
    types = dict.fromkeys((entry.gpu, entry.partitioned) for entry in instance.fleet)
    for gpu, mig in types if len(types) > 1 else ():
        fleet = tuple(entry for entry in instance.fleet if (entry.gpu, entry.partitioned) == (gpu, mig))
        performance = tuple(data for data in instance.performance if data.gpu == gpu)
        known = {model for data in performance for model in data.models}
        if all(model in known for workload in instance.workloads for model in workload.models):
            yield instance.replace(fleet=fleet, performance=performance)


def unsplit(instance: Instance) -> Instance | None:
    """The instance with one replica for every workload that one can carry; None where that changes nothing.

    Only for GPUs shared under interference: elsewhere splitting is as quick to plan.
    """
    if "interference" not in needs(instance):
        return None
    most_rps = best_segments(instance).throughput_rps.max(axis=1, initial=0.0)
    free = np.array([one.max_replicas != 1 and one.min_replicas <= 1 and one.max_share_per_gpu == 1
                     and instance.planned_rps(one) <= most_rps[at] for at, one in enumerate(instance.workloads)])
    if not free.any():
        return None
    return instance.replace(workloads=tuple(one.model_copy(update={"max_replicas": 1}) if chosen else one
                                            for one, chosen in zip(instance.workloads, free.tolist(), strict=True)))


def whole_plan(instance: Instance, plan: Plan) -> Plan:
    """A plan of a narrower instance, or of one with another objective, as one of the instance itself."""
    return plan.model_copy(update={"digest": instance.digest})

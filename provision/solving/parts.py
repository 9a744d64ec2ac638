"""Narrower instances: instances with fewer choices. All of their plans are valid for the instance itself."""

from collections.abc import Iterator

from provision.models.problem.instance import Instance


def parts_of(instance: Instance) -> Iterator[Instance]:
    """Yield the instance without shared slices, and with only one GPU type of a mixed fleet, if that type can run all
    workloads.
    """
    if instance.policy.share_slices:
        yield instance.with_policy(share_slices=False)
    types = dict.fromkeys((entry.gpu, entry.partitioned) for entry in instance.fleet)
    for gpu, mig in types if len(types) > 1 else ():
        fleet = tuple(entry for entry in instance.fleet if (entry.gpu, entry.partitioned) == (gpu, mig))
        performance = tuple(data for data in instance.performance if data.gpu == gpu)
        known = {model for data in performance for model in data.models}
        if all(model in known for workload in instance.workloads for model in workload.models):
            yield instance.replace(fleet=fleet, performance=performance)

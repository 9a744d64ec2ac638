"""An exporter of another package: a line per replica."""

from provision.exporters.common import Exported


def render(plan, instance, gpus_per_node):
    """``names.txt``: the workload and the batch size of every replica."""
    lines = [f"{replica.workload} {replica.batch}\n" for *_, replica in plan.replicas()]
    return Exported({"names.txt": "".join(lines)}, ("Nothing reads this file.",))

"""Derives the bursts of workflows: later stages get requests in bursts, which are as large as the batches before them.

A burst is as large as the largest batch on any path to a workload, since replicas that get a burst together also answer
it together. Workloads with tokens are left out, since their engines answer token by token.
"""

from collections.abc import Mapping

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.workflow import Workflow
from provision.models.problem.workload import Stage


def refuse_unequal_rates(instance: Instance) -> None:
    """Refuse workflows whose workloads have different rates: every request passes through all of them. Raises
    InputError if there is one. The message names the workflow and the rates.
    """
    for workflow in instance.workflows:
        rates = {instance.workload[name].rate_rps for name in workflow.workloads}
        if len(rates) > 1:
            shown = ", ".join(f"{rate:g}" for rate in sorted(rates))
            raise InputError(f"workflow {workflow.name}: every request passes through all its workloads, but their "
                             f"rates are {shown} requests/s; give all the same")


def with_bursts(instance: Instance) -> list[Workflow]:
    """The workflows in which batches of one workload become bursts for another."""
    if not instance.policy.rule.random_arrivals:
        return []
    return [flow for flow in instance.workflows
            if flow.graph.size() and not any(instance.workload[name].tokens for name in flow.workloads)]


def feeding(instance: Instance) -> list[str]:
    """The names of the workloads whose batches become bursts for other workloads."""
    return [name for flow in with_bursts(instance) for name in flow.order if flow.graph.out_degree(name)]


def bursts(instance: Instance, batches: Mapping[str, int]) -> dict[str, int]:
    """Return how many requests may arrive at once, for every workload that follows others in a workflow.

    Parameters
    ----------
    instance
        The instance with its workflows.
    batches
        By workload that others follow, its largest batch; 1 for workloads that are not named.
    """
    found: dict[str, int] = {}
    for flow in with_bursts(instance):
        for name in flow.order:
            before = list(flow.graph.predecessors(name))
            if before:
                found[name] = max(max(batches.get(one, 1), found.get(one, 1)) for one in before)
    return found


def in_stages(instance: Instance, batches: Mapping[str, int], limited: bool = False) -> Instance:
    """The instance with the bursts that these largest batches cause; if ``limited``, plans may not have larger batches.
    """
    arriving = bursts(instance, batches)
    stages = {name: Stage(burst=arriving.get(name, 1), most_batch=batches.get(name) if limited else None)
              for name in {*arriving, *(batches if limited else ())}}
    changed = {name: stage for name, stage in stages.items() if stage != Stage()}
    if not changed:
        return instance
    return instance.replace(workloads=[one.model_copy(update={"stage": changed.get(one.name, one.stage)})
                                       for one in instance.workloads])


def as_deployed(instance: Instance, plan: Plan) -> Instance:
    """The instance with the bursts that the batches of a plan cause."""
    if not with_bursts(instance):
        return instance
    largest: dict[str, int] = {}
    for *_, one in plan.replicas():
        largest[one.workload] = max(largest.get(one.workload, 1), one.batch)
    before = feeding(instance)
    return in_stages(instance, {name: batch for name, batch in largest.items() if name in before})

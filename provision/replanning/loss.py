"""Replans after the loss of a GPU of the running plan."""

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.replanning.replan import Replan, replan


def after_loss(instance: Instance, plan: Plan, lost: int) -> tuple[Instance, Plan]:
    """The pair (the instance with one GPU less if its fleet has counts, the part of the plan that still runs).

    Parameters
    ----------
    instance, plan
        The instance, and the plan that ran.
    lost
        The index of the lost GPU in the plan.

    Raises
    ------
    InputError
        If the plan has no such GPU, or the fleet lacks the type of the GPU.
    """
    if not 0 <= lost < len(plan.gpus):
        known = f"which has GPUs 0 to {len(plan.gpus) - 1}" if plan.gpus else "which has none"
        raise InputError(f"lost {lost}: is not in the plan, {known}; name one of its GPUs")
    entry = objective_of(instance).entries_of(plan)[lost]
    if entry < 0:
        raise InputError(f"lost {lost}: the fleet of {instance.name} has no {plan.gpus[lost].gpu}; correct the plan")
    fleet = tuple(
        one.model_copy(update={"count": max(one.count - 1, 0)}) if at == entry and one.count is not None else one
        for at, one in enumerate(instance.fleet)
    )
    left = tuple(gpu for at, gpu in enumerate(plan.gpus) if at != lost)
    return instance.replace(fleet=fleet), plan.model_copy(update={"gpus": left})


def replan_lost(instance: Instance, plan: Plan, lost: int, change_cost: float | None = None, allow: str = "slices",
                time_limit_s: float = 60.0) -> Replan:
    """Replan after the loss of a GPU.

    If the search is not exact, one of the compared plans puts all replicas of the lost GPU on another GPU and keeps the
    rest.

    Parameters
    ----------
    instance, plan, lost
        The instance with the lost GPU, the plan that ran, and the index of the lost GPU in this plan.
    change_cost, allow, time_limit_s
        As for ``replan``.

    Returns
    -------
    Replan
        The result; its changes are counted against the part of the plan that still runs.

    Raises
    ------
    InputError
        If there is no such GPU, and in the cases of ``replan``.
    UnsupportedError
        As for ``replan``.
    """
    left, running = after_loss(instance, plan, lost)
    restored = running.model_copy(update={"gpus": (*running.gpus, plan.gpus[lost]), "digest": left.digest})
    return replan(left, running, change_cost, allow, time_limit_s, others=(restored,))

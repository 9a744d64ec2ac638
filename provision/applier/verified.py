"""``provision.apply``: verifies a plan against its instance, as an export does, and puts it on the GPUs."""

from collections.abc import Callable, Sequence

from provision.applier import operations
from provision.applier.execute import Permissions
from provision.applier.layout import Observed
from provision.applier.outcome import RunOutcome
from provision.applier.steps import Step
from provision.applier.target import Commands, check_plan, refuse_stale
from provision.instances.files.files import FilePath
from provision.instances.read import read, read_plan
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.verification.verify import refuse_unsound


def apply(
    instance: Instance | FilePath, plan: Plan | FilePath, state: FilePath | None = None,
    gpus: Sequence[str] | None = None, server: str | None = None, permissions: Permissions | None = None,
    confirm: Callable[[Observed, Sequence[Step]], bool] | None = None, report: Callable[[Step], None] | None = None,
    wait: bool = False, force: bool = False,
) -> RunOutcome:
    """Put a plan on the GPUs of this machine, changing only what differs. On failure, undo the changes.

    Parameters
    ----------
    instance
        The Instance that the plan is for, its shipped name or its path.
    plan
        The Plan, or its path.
    state
        The state directory; by default the user's own.
    gpus
        The indices or UUIDs of the GPUs that may be used; by default all GPUs of the plan's types.
    server
        The command that serves a replica, such as ``serve {model} --batch {batch}``. By default no server is started.
    permissions
        The Permissions. By default, the applier disturbs nothing that it did not start or make itself.
    confirm
        Called with the observed state and the steps. Unless it returns true, nothing is done. By default there is no
        question.
    report
        Called with every step before it is done.
    wait
        Whether to wait for another applier instead of refusing.
    force
        Whether a plan is applied that was made for another instance, or for another state of it.

    Returns
    -------
    RunOutcome

    Raises
    ------
    InputError
        If nothing was done, because the plan is stale, has violations or does not fit, or because the GPUs cannot be
        used.
    """
    instance, plan = read(instance), read_plan(plan, instance)
    check_plan(plan)
    refuse_stale(instance, plan, force)
    refuse_unsound(instance, plan)
    commands = Commands(server, {workload.name: workload.model for workload in instance.workloads})
    state = operations.default_state() if state is None else state
    return operations.apply(plan, state, gpus, commands, permissions, confirm, report, wait)

"""Makes settings of slices that closed networks share: at each level, ways with their utilisation and memory."""

from collections.abc import Iterator

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.settings import UNLIMITED, Setting, Way
from provision.formulations.pricing.shared_mig.levels import searched_levels
from provision.formulations.pricing.shared_mig.points import choices_of
from provision.formulations.search.problem import Group, Problem, Shareable
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance

MARGIN = 1 - TOLERANCE
"""The part of their capacity for which slices and processes are planned; the rest leaves room for rounding."""


def network_settings(problem: Problem, shared: Shareable) -> Iterator[Setting]:
    """Yield a setting for every level of a slice type that at least two workloads can share, by the networks of one
    file.
    """
    slice_type = problem.segments.slice_types[shared.slice_type]
    entry, data = problem.instance.fleet[slice_type.entry], shared.data
    if not isinstance(data, FittedNetworks) or slice_type.profile not in data.profiles:
        return
    clients = entry.type.slice_mps_clients(slice_type.profile)
    levels = searched_levels(clients, problem.instance.shared_rule.random_arrivals)
    found = list(_ways(problem, shared, data, clients))
    for number, level in enumerate(levels):
        ways = [way for at, way in found if at == number]
        if sum(len(problem.groups[at].members) for at in {way.group for way in ways}) > 1:
            yield Setting(ways, level.use * MARGIN, level.processes,
                          entry.type.slice_memory_gib(slice_type.profile) * MARGIN, workloads=2)


def _ways(problem: Problem, shared: Shareable, data: FittedNetworks, clients: int) -> Iterator[tuple[int, Way]]:
    """Yield the ways at all levels, each with the index of its level; models that an earlier file describes have none.
    """
    instance, slice_type = problem.instance, problem.segments.slice_types[shared.slice_type]
    entry = instance.fleet[slice_type.entry]
    levels = searched_levels(clients, instance.shared_rule.random_arrivals)
    before = [one.data for one in problem.shareable if one.slice_type == shared.slice_type]
    known = {model for file in before[: before.index(data)] for model in file.models}
    for at, group in enumerate(problem.groups):
        workload, counted = instance.workloads[group.members[0]], _is_counted(instance, group)
        for model, name in enumerate(() if workload.tokens else workload.models):
            if name in data.models and name not in known:
                network = data.models[name].coefficients
                most = min(network.max_processes, clients)
                for one in choices_of(instance, workload, network, data.batches, entry, slice_type.profile, levels,
                                      most if counted else 1):
                    yield one.level, Way(
                        at, Running(model, one.batch, one.processes, 1.0), 0, one.least_rps, one.most_rps * MARGIN,
                        one.busy, one.memory_gib, UNLIMITED if counted else most, counted)


def _is_counted(instance: Instance, group: Group) -> bool:
    """Whether the number of replicas of a workload, or the number of processes of each replica, matters."""
    one = instance.workloads[group.members[0]]
    return one.min_replicas > 1 or one.max_replicas is not None or instance.shared_rule.random_arrivals

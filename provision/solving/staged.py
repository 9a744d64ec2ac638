"""Plans workflows, whose later stages receive the batches of the previous stage as bursts.

The size of these bursts is not known before there is a plan. So first a largest batch size is chosen for every workload
that others follow. Then all workloads can be planned like others: those that are followed have a limit on their batch
size, and those that follow receive bursts of that size (`provision.models.traffic.bursts`). After quick plans for every
choice, the instance is planned once without bursts. That gives a bound, because bursts never let a replica carry more,
and it often gives a valid plan.

There is a further bound if only one workload is followed by others, no slice is shared (all replicas on shared slices
are judged by the largest burst), and all batch sizes of that workload were tried: the least of the bounds for these
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from provision.models.problem.instance import Instance
from provision.models.problem.method import SHARED, Method, needs
from provision.models.problem.prediction import feeding, in_stages
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving.detour import Other, by_others
from provision.solving.steps import Step


def planned(method: Method, instance: Instance, search: Search) -> Outcome:
    """The outcome of a method on an instance, with the bursts of later stages taken into account."""
    return in_bursts(instance, search, method.run) if feeding(instance) else method.run(instance, search)


def in_bursts(instance: Instance, search: Search, run: Step) -> Outcome:
    """Find the best plan for an instance with workflows, and a bound.

    Parameters
    ----------
    instance, search
        The problem, in which the batches of some workloads are bursts for others, and the Search.
    run
        Plans an instance whose bursts are known.
    """
    names = feeding(instance)
    known = {name: _batch_sizes(instance, name) for name in names}
    tried = {name: _few(sizes) for name, sizes in known.items()}
    choices = [Other(in_stages(instance, sizes, limited=True)) for sizes in _choices(tried)]
    every = len(names) == 1 and tried == known and not needs(instance) & SHARED
    return by_others(
        Progress(instance, search), run, Other(instance), choices,
        lambda: "no plan was found that bears the bursts in which later stages get requests; a longer time limit may "
                "help",
        none=f"whatever the batches of {names[0]}, the workloads that follow it get them as bursts that they cannot "
             "answer in time; raise an SLO" if every else "")


def _choices(tried: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Yield choices of the largest batch of each workload: for every size that is tried for some workload, the largest
    of each workload up to that size.
    """
    for most in sorted({size for sizes in tried.values() for size in sizes}):
        yield {name: max([size for size in sizes if size <= most], default=sizes[0]) for name, sizes in tried.items()}


def _batch_sizes(instance: Instance, name: str) -> list[int]:
    """All batch sizes of a workload in its performance data, ascending."""
    found = {int(batch) for entry in instance.fleet for model in instance.workload[name].models
             for profile in entry.profiles
             if (data := instance.performance_of(entry.gpu, model, profile)) is not None
             for batch in instance.points_of(data, model, profile).batch}
    return sorted(found) or [1]


def _few(sizes: list[int]) -> list[int]:
    """The batch sizes that are tried, ascending: the largest up to each power of two, and the largest of all."""
    powers = (max(2**power, sizes[0]) for power in range(1 + math.ceil(math.log2(sizes[-1]))))
    return sorted({max(size for size in sizes if size <= most) for most in powers})

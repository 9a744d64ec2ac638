"""The GPU configurations of MIG-serving (a partition with a workload in every MIG instance), and their scores.

Tan et al. 2021 ("Serving DNN Models with Multi-Instance GPUs: A Case of the Reconfigurable Machine
Scheduling Problem"). The *utility* of a configuration for a workload is the fraction of the workload's rate that it
carries; the *completion rate* of a workload is the sum of its utilities over all GPUs so far. The score of a
configuration is

    sum over workloads of (1 - completion rate) * utility.

A configuration mixes at most two workloads. Since the score is a sum over instances, two workloads can divide a
partition with the best score so that all instances of one size go to the same workload. Therefore not all pairs of
workloads are tried, but all divisions of a partition's sizes into two groups; each group gets the workload with the
highest score on it.

The common parts of methods for one GPU type with MIG and without MPS: their features and their outcome.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.fleet import partitions_of
from provision.formulations.search.segments import Segments, best_segments
from provision.models.base.arrays import Floats, Ints
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search, Termination

SLACK = 1e-10
"""The fraction of a workload's rate below which a rest does not require one more instance."""

Config = tuple[tuple[int, int], ...]
"""A GPU configuration: the slice type and the workload of every instance."""


class Configs:
    """The GPU configurations of one fleet entry, tuples of (slice type, workload).

    ``utility`` is (workloads, slice types): the fraction of the rate that one instance carries, 1 for workloads without
    requests.
    """

    def __init__(self, instance: Instance, segments: Segments) -> None:
        rate = np.array([instance.planned_rps(one) for one in instance.workloads])[:, None]
        throughput = segments.throughput_rps
        self.utility = np.where(rate > 0, throughput / np.where(rate > 0, rate, 1), throughput > 0)
        splits = [split for slots in partitions_of(instance, segments).slots for split in _splits(slots)]
        self._first, self._second = np.array(splits).transpose(1, 0, 2)

    def given(self, config: Config) -> Floats:
        """(workloads,), the utility of a configuration for every workload."""
        found = np.zeros(len(self.utility))
        for slice_type, workload in config:
            found[workload] += self.utility[workload, slice_type]
        return found

    def best(self, completion: Floats, most: int = 1) -> list[Config]:
        """At most ``most`` configurations, highest score first; each is the best for one division of a partition's
        sizes.
        """
        gains = needed(completion)[:, None] * self.utility
        first, second = gains @ self._first.T, gains @ self._second.T
        order = np.argsort(-(first.max(axis=0) + second.max(axis=0)), kind="stable")
        owners = zip(first.argmax(axis=0)[order], second.argmax(axis=0)[order], order, strict=True)
        distinct = dict.fromkeys(
            self._held(gains, self._first[split], one) + self._held(gains, self._second[split], other)
            for one, other, split in itertools.islice(owners, None if most > 1 else 1)
        )
        return list(itertools.islice(distinct, most))

    def fill(self, completion: Floats) -> list[Config]:
        """Configurations that complete all workloads: the configuration with the highest score is chosen again and
        again.
        """
        completion, chosen = completion.copy(), []
        while needed(completion).any():
            chosen += self.best(completion)
            completion += self.given(chosen[-1])
        return chosen

    def _held(self, gains: Floats, slots: Ints, workload: int) -> Config:
        """The pairs (slice type, workload) for all MIG instances in ``slots`` that would raise the workload's
        completion rate. ``slots`` counts instances by slice type.
        """
        return tuple(
            (int(slice_type), int(workload))
            for slice_type in np.flatnonzero((slots > 0) & (gains[workload] > 0)) for _ in range(slots[slice_type])
        )


def needed(completion: Floats) -> Floats:
    """(workloads,), the fraction of each rate that is still to be carried."""
    left = 1 - completion
    return np.where(left > SLACK, left, 0.0)


def _splits(slots: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield all divisions of a partition's sizes into two groups, each once."""
    slice_types = np.flatnonzero(slots)
    for taken in itertools.product((True, False), repeat=len(slice_types) - 1):
        first = slots.copy()
        first[slice_types[1:][~np.array(taken, bool)]] = 0
        yield first, slots - first


FEATURES = frozenset({"limited_counts", "with_mig", "without_mps", "isolated_data"})
"""The features of instances that these methods can handle: one GPU type with MIG, any performance data for isolated
slices.
"""


def planned(instance: Instance, control: Search, name: str,
            deploy: Callable[[Segments], tuple[Segments, Sequence[Config], Termination]]) -> Outcome:
    """The Outcome of a method that deploys workloads on MIG instances with one process each.

    Parameters
    ----------
    instance, control
        The instance and the search.
    name
        The name of the method.
    deploy
        The function that deploys: given the Segments, it returns the Segments that it used, the GPUs as tuples of
        (slice type, workload), and the termination.
    """
    segments = best_segments(instance, max_processes=1)
    refused = proved_infeasible(instance, segments)
    if refused:
        return refused
    build_seconds = control.elapsed_s
    segments, deployment, termination = deploy(segments)
    limit = instance.fleet[0].count
    if limit is None or len(deployment) <= limit:
        plan, reason = assemble(instance, segments, [Layout(0, config) for config in deployment], name), ""
    else:
        plan, reason = None, f"{name} needs {len(deployment)} GPUs and the fleet has {limit}"
    return Outcome("feasible" if plan else "unknown", termination, plan, reason=reason, build_seconds=build_seconds)

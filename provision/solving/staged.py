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
from collections.abc import Iterator, Mapping

from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.stages import feeding, in_stages
from provision.solving.detour import Detour, Other, Run
from provision.solving.schedule import DETOUR

SHARING = {"interference", "other_sharing", "gpulets", "share_slices"}
"""The features of instances with shared slices."""
MOST_SIZES = 12
"""The most batch sizes of a workload that are tried. If there are more, powers of two are taken."""

Sizes = Mapping[str, int]
"""The largest batch of each workload that others follow."""


def planned(method: Method, instance: Instance, search: Search) -> Outcome:
    """The outcome of a method on an instance, with the bursts of later stages taken into account."""
    return in_bursts(instance, search, method.run) if feeding(instance) else method.run(instance, search)


def in_bursts(instance: Instance, search: Search, run: Run) -> Outcome:
    """Find the best plan for an instance with workflows, and a bound.

    Parameters
    ----------
    instance, search
        The problem, in which the batches of some workloads are bursts for others, and the Search.
    run
        Plans an instance whose bursts are known.
    """
    detour, plain = Detour(instance, search, run), Other(instance, instance.adopted)
    choices = _Choices(instance, detour)
    choices.try_quickly()
    for _ in detour.in_turns([plain, *choices.others()]):
        if plain.impossible:
            return Outcome("infeasible", "proved", reason=plain.reason)
        detour.progress.prove(plain.bound)
        bound = choices.bound
        if bound == math.inf and detour.progress.plan is None:
            return Outcome("infeasible", "proved", reason=f"whatever the batches of {choices.names[0]}, the workloads "
                           "that follow it get them as bursts that they cannot answer in time; raise an SLO")
        detour.progress.prove(bound)
    return detour.outcome(plain.reason or "no plan was found that bears the bursts in which later stages get requests; "
                          "a longer time limit may help")


class _Choices:
    """The choices of largest batches, and what is known of the instances that they give.

    Parameters
    ----------
    instance, detour
        The problem, and the Detour that plans it.
    """

    def __init__(self, instance: Instance, detour: Detour) -> None:
        self.instance, self.detour, self.names = instance, detour, feeding(instance)
        self.sizes = {name: _sizes(instance, name) for name in self.names}
        several = sorted({size for sizes in self.sizes.values() for size in sizes})
        self.alike = {size: {name: max([one for one in self.sizes[name] if one <= size], default=self.sizes[name][0])
                             for name in self.names} for size in several}
        self.losses: dict[int, float] = {}
        self.best: dict[str, int] = {}
        self.begun: dict[int, Other] = {}

    @property
    def bound(self) -> float | None:
        """The least bound of all sizes; None if that is not a bound for the instance."""
        every = set(_every_size(self.instance, self.names[0]))
        if len(self.names) > 1 or self.begun.keys() != every or needs(self.instance) & SHARING:
            return None
        objective = objective_of(self.instance)
        known = [math.inf if one.impossible else -math.inf if one.bound is None else objective.loss(one.bound)
                 for one in self.begun.values()]
        return None if -math.inf in known else objective.sense * min(known)

    def try_quickly(self) -> None:
        """Try quick plans with one size for all workloads, until there is one at least; starting from the best of these
        choices, try other sizes for single workloads.
        """
        end = Deadline(DETOUR.quick_s)
        self.losses = {size: self._quick(sizes) for size, sizes in self.alike.items()
                       if not self.detour.over and not (end.over and self.best)}
        for name in self.names if len(self.names) > 1 and self.best else ():
            for size in self.sizes[name]:
                if not self.detour.over and not end.over:
                    self._quick({**self.best, name: size})

    def others(self) -> Iterator[Other]:
        """Yield the instance of the best choice so far, if it is not in ``alike``; then those of ``alike``, the best
        quick plan first, which are also kept in ``begun``.
        """
        if self.best and self.best not in self.alike.values():
            yield self._other(self.best)
        for size in sorted(self.alike, key=lambda one: self.losses.get(one, math.inf)):
            self.begun[size] = self._other(self.alike[size])
            yield self.begun[size]

    def _other(self, sizes: Sizes) -> Other:
        """The instance with these sizes."""
        return Other(in_stages(self.instance, sizes, limited=True), self.instance.adopted)

    def _quick(self, sizes: Mapping[str, int]) -> float:
        """Make a quick plan with these sizes, and keep the sizes if it is the best plan so far.

        Returns the plan's objective, with the sign that makes smaller better; infinite without a valid plan.
        """
        other, before, objective = self._other(sizes), self.detour.progress.plan, objective_of(self.instance)
        found = self.detour.quick(other.instance).plan
        if found is None or not self.detour.offer(plan := other.back(found)):
            return math.inf
        if self.detour.progress.plan is not before:
            self.best = dict(sizes)
        return objective.loss(objective.value(plan))


def _every_size(instance: Instance, name: str) -> list[int]:
    """All batch sizes of a workload in its performance data, ascending."""
    found = {int(batch) for entry in instance.fleet for model in instance.workload[name].models
             for profile in entry.profiles
             if (data := instance.performance_of(entry.gpu, model, profile)) is not None
             for batch in instance.points_of(data, model, profile).batch}
    return sorted(found) or [1]


def _sizes(instance: Instance, name: str) -> list[int]:
    """The batch sizes of a workload that are tried, ascending: all or, if there are many, powers of two and the
    largest.
    """
    several = _every_size(instance, name)
    if len(several) <= MOST_SIZES:
        return several
    doubled = {max(one for one in several if one <= 2**power) for power in range(1 + int(math.log2(several[-1])))
               if several[0] <= 2**power}
    return sorted(doubled | {several[-1]})

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
from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.models.base.clock import Deadline
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.stages import feeding, in_stages
from provision.solving.detour import Detour, Run

PLAIN_SHARE, QUICK_SHARE, CHOICE_SHARE = 0.3, 0.3, 0.5
"""The fractions of the remaining time for the plan without bursts, for all quick plans together, and for each choice.
"""
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
    detour = Detour(instance, search, run)
    choices = _Choices(instance, detour)
    choices.begin()
    found = detour.plan(instance, PLAIN_SHARE, instance.adopted)
    if found.status == "infeasible":
        return found
    detour.progress.prove(found.bound)
    choices.try_alike()
    choices.try_one_by_one()
    bound = choices.bound
    if bound == math.inf and detour.progress.plan is None:
        return Outcome("infeasible", "proved", reason=f"whatever the batches of {choices.names[0]}, the workloads that "
                       "follow it get them as bursts that they cannot answer in time; raise an SLO")
    detour.progress.prove(bound)
    return detour.outcome(found.reason or "no plan was found that bears the bursts in which later stages get requests; "
                          "a longer time limit may help")


@dataclass
class _Choices:
    """The choices of largest batches, and the bounds of the choices that have been tried.

    Parameters
    ----------
    instance, detour
        The problem, and the Detour that plans it.
    """

    instance: Instance
    detour: Detour
    bounds: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = feeding(self.instance)
        self.sizes = {name: _sizes(self.instance, name) for name in self.names}
        several = sorted({size for sizes in self.sizes.values() for size in sizes})
        self.alike = {size: {name: max([one for one in self.sizes[name] if one <= size], default=self.sizes[name][0])
                             for name in self.names} for size in several}
        self.losses: dict[int, float] = {}
        self.best: dict[str, int] = {}

    @property
    def bound(self) -> float | None:
        """The least bound of all sizes; None if that is not a bound for the instance."""
        every = set(_every_size(self.instance, self.names[0]))
        if len(self.names) > 1 or self.bounds.keys() != every or needs(self.instance) & SHARING:
            return None
        return objective_of(self.instance).sense * min(self.bounds.values())

    def begin(self) -> None:
        """Try quick plans with one size for all workloads, until there is one at least."""
        end = Deadline(self.detour.search.left_s * QUICK_SHARE)
        self.losses = {size: self._quick(sizes) for size, sizes in self.alike.items()
                       if not self.detour.over and not (end.over and self.best)}

    def try_alike(self) -> None:
        """Try the same size for all workloads; sizes with the best quick plans come first."""
        for size in sorted(self.alike, key=lambda one: self.losses.get(one, math.inf)):
            if self.detour.over:
                return
            self._try(self.alike[size], size)

    def try_one_by_one(self) -> None:
        """Starting from the best choice so far, try other sizes for single workloads by quick plans."""
        for name in self.names if len(self.names) > 1 and self.best else ():
            for size in self.sizes[name]:
                if self.detour.over:
                    return
                self._quick({**self.best, name: size})

    def _quick(self, sizes: Sizes) -> float:
        """Make a quick plan; return its loss, which is infinite without a plan."""
        return self._offered(self.detour.quick(in_stages(self.instance, sizes, limited=True)).plan, sizes)

    def _try(self, sizes: Sizes, size: int) -> None:
        """Plan the instance with these sizes, and record the bound."""
        found = self.detour.plan(in_stages(self.instance, sizes, limited=True), CHOICE_SHARE)
        self._offered(found.plan, sizes)
        if found.status == "infeasible":
            self.bounds[size] = math.inf
        elif found.bound is not None:
            self.bounds[size] = objective_of(self.instance).loss(found.bound)

    def _offered(self, found: Plan | None, sizes: Sizes) -> float:
        """Offer a plan with these sizes, if there is one, as the best plan, and keep the sizes if it is accepted.

        Returns the plan's objective, with the sign that makes smaller better; infinite without a valid plan.
        """
        before = self.detour.progress.plan
        if found is None or not self.detour.offer(plan := self.instance.adopted(found)):
            return math.inf
        if self.detour.progress.plan is not before:
            self.best = dict(sizes)
        return objective_of(self.instance).loss(objective_of(self.instance).value(plan))


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

"""Plans in which replicas share whole GPUs under interference: conversion of sets of classes to a Plan and back."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from provision.formulations.pricing.mps.kernels import TRIES, arrange
from provision.formulations.pricing.mps.laws import shares_of
from provision.formulations.pricing.mps.pools import Fleet, GpuPool, fleet_of
from provision.formulations.pricing.mps.tables import Classes, classes_of
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Ints
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Search

FEATURES = frozenset({"several_gpu_types", "limited_counts", "without_mig", "interference", "random_interference",
                      "variants"})
"""The features of instances that methods for shared GPUs take."""


Pattern = tuple[int, tuple[int, ...]]
"""One shared GPU: the index of its GpuSupply, and the classes that share it in ascending order."""


@dataclass(frozen=True)
class SharedProblem:
    """An instance with its classes of equal demands and the GPU types to plan on."""

    instance: Instance
    classes: Classes
    fleet: Fleet

    def points(self, pattern: Pattern) -> Ints | None:
        """Operating points of a pattern; None when none are found."""
        pool, members = pattern
        points, units = np.zeros((2, len(members)), int)
        tables = self.fleet.pools[pool].tables
        total = arrange(tables, np.array(members), len(members), units, points, TRIES)
        return points if total > 0 else None

    def chosen(self, pattern: Pattern) -> Ints:
        """The operating points that a plan has for a feasible pattern."""
        found = self.points(pattern)
        assert found is not None, "methods offer only patterns that can be planned"
        return found

    def used(self, patterns: Iterable[Pattern]) -> list[int]:
        """How many GPUs of each type patterns take, in the order of the fleet's pools."""
        counts = Counter(pool for pool, _ in patterns)
        return [counts[pool] for pool in range(len(self.fleet.pools))]

    def cost(self, patterns: Iterable[Pattern]) -> int:
        """Price of the GPUs of patterns, in units."""
        return sum(pool.cost(many) for pool, many in zip(self.fleet.pools, self.used(patterns), strict=True))

    @property
    def dearest(self) -> int:
        """The price of the dearest plan: every replica on a GPU of its own, in units."""
        return len(self.classes.parts) * self.fleet.dearest

    def alone(self) -> list[Pattern]:
        """The patterns with every replica on a GPU of its own, of the cheapest type that can serve it."""
        order = sorted(range(len(self.fleet.pools)), key=lambda pool: self.fleet.pools[pool].cost(1))
        pairs = zip(range(len(self.classes.demands)), self.classes.counts, strict=True)
        return [found for one, many in pairs for found in many * [self._alone(one, order)]]

    def _alone(self, one: int, order: Iterable[int]) -> Pattern:
        return next((pool, (one,)) for pool in order if self.points((pool, (one,))) is not None)

    def short(self, patterns: Iterable[Pattern]) -> list[str]:
        """For each GPU type of which patterns take more than the fleet has, a phrase that says how many."""
        pairs = zip(self.fleet.pools, self.used(patterns), strict=True)
        return [f"{many} {pool.gpu} GPUs and the fleet has {pool.count}" for pool, many in pairs
                if pool.count is not None and many > pool.count]

    def outcome(self, patterns: Sequence[Pattern] | None, method: str, **found: Any) -> Outcome:
        """The Outcome of a method that ends with these patterns; it has no plan if the fleet has too few GPUs."""
        if patterns is None:
            return Outcome(**found)
        short = self.short(patterns)
        if found["status"] == "infeasible":
            return Outcome(**found, reason=f"the fleet is too small: the best plan needs {' and '.join(short)}")
        if short:
            return Outcome(**found | {"status": "unknown", "reason": f"{method} needs {' and '.join(short)}"})
        return Outcome(plan=self.plan(patterns, method), **found)

    def plan(self, patterns: Iterable[Pattern], method: str) -> Plan:
        """The Plan of patterns, which together must have a place for every replica."""
        waiting = [list(parts) for parts in self.classes.members]
        return self.instance.plan_of(method, (self._gpu(pattern, waiting) for pattern in patterns))

    def _gpu(self, pattern: Pattern, waiting: Sequence[list[int]]) -> PlannedGpu:
        pool = self.fleet.pools[pattern[0]]
        pairs = zip(pattern[1], self.chosen(pattern), strict=True)
        replicas = tuple(self._replica(pool, point, waiting[one].pop()) for one, point in pairs)
        return PlannedGpu(gpu=pool.gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=replicas),))

    def _replica(self, pool: GpuPool, point: Any, part: int) -> Replica:
        index, rate_rps = self.classes.parts[part]
        workload, tables = self.instance.workloads[index], pool.tables
        shares = shares_of(pool.tables.unit_share)
        return Replica(
            workload=workload.name,
            batch=int(tables.batch[point]),
            sm_share=float(shares[tables.units[point] - 1]),
            rate_rps=rate_rps,
            model=workload.named(tables.model[point]),
        )

    def patterns(self, plan: Plan | None) -> list[Pattern] | None:
        """The patterns of a Plan; None without a plan, or if it is not feasible for these classes and tables."""
        if plan is None:
            return None
        parts: dict[str, list[int]] = {}
        of_part = self.classes.of_part
        for part, (workload, _) in enumerate(self.classes.parts):
            parts.setdefault(self.instance.workloads[workload].name, []).append(int(of_part[part]))
        found, pools = [], {pool.gpu: index for index, pool in enumerate(self.fleet.pools)}
        for gpu in plan.gpus:
            names = [replica.workload for piece in gpu.slices for replica in piece.replicas]
            if gpu.gpu not in pools or any(len(parts[name]) < many for name, many in Counter(names).items()):
                return None
            found.append((pools[gpu.gpu], tuple(sorted(parts[name].pop() for name in names))))
        bears = not any(parts.values()) and all(self.points(pattern) is not None for pattern in set(found))
        return found if bears else None


AnyProblem = TypeVar("AnyProblem", bound=SharedProblem)


def shared_problem(instance: Instance) -> SharedProblem:
    """The SharedProblem of an instance with no more than FEATURES."""
    classes = classes_of(instance)
    return SharedProblem(instance, classes, fleet_of(instance, classes.demands, len(classes.parts)))


def plan_shared(
    instance: Instance,
    control: Search,
    name: str,
    search: Callable[[AnyProblem], tuple[Sequence[Pattern] | None, dict[str, Any]]],
    make: Callable[[Instance], AnyProblem],
) -> Outcome:
    """Run a method's search on an instance: the Outcome is a refusal, or what the search returns.

    Parameters
    ----------
    instance, control
        An instance with no more than FEATURES, and the search.
    name
        The name of the method.
    search
        Takes the SharedProblem; returns patterns and, by name, the status, termination and bound of an Outcome.
    make
        Makes the SharedProblem of the instance.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    problem = make(instance)
    build_seconds = control.elapsed_s
    patterns, found = search(problem)
    return problem.outcome(patterns, name, **found, build_seconds=build_seconds)


def is_shared(instance: Instance) -> bool:
    """Whether the instance asks for plans under interference, and for no more than FEATURES."""
    asked = needs(instance)
    return "interference" in asked and asked <= FEATURES

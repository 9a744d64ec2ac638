"""Plans in which replicas share whole GPUs under interference: from sets of classes to a Plan and back."""

from collections import Counter
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from provision.models.feasibility import refusal
from provision.models.gpu import WHOLE
from provision.models.igniter_kernels import TRIES, arrange
from provision.models.igniter_tables import Classes, Tables, classes_of, gpu_data, serves, shares_of, tables_of
from provision.models.method import Outcome, needs
from provision.models.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.segments import best_segments

FEATURES = frozenset({"limited_counts", "without_mig", "interference"})
"""What methods that plan shared GPUs can do."""


@dataclass(frozen=True)
class SharedProblem:
    """An instance with its classes and their tables; a pattern is a tuple of classes that share a GPU."""

    instance: object
    classes: Classes
    tables: Tables

    def points(self, pattern):
        """Operating points of a pattern; None when none are found."""
        points, units = np.zeros((2, len(pattern)), int)
        total = arrange(self.tables, np.array(pattern), len(pattern), units, points, TRIES)
        return points if total > 0 else None

    def outcome(self, patterns, method, **found):
        """The Outcome of a method that ends with these patterns; unknown when the fleet is smaller."""
        most = self.instance.fleet[0].count
        if most is not None and len(patterns) > most:
            reason = f"{method} needs {len(patterns)} GPUs and the fleet has {most}"
            return Outcome(**found | {"status": "unknown", "reason": reason})
        return Outcome(plan=self.plan(patterns, method), **found)

    def plan(self, patterns, method):
        """The Plan of patterns that together have a place for every part."""
        waiting = [list(parts) for parts in self.classes.members]
        return self._assembled([self._replicas(pattern, waiting) for pattern in patterns], method)

    def _replicas(self, pattern, waiting):
        pairs = zip(pattern, self.points(pattern), strict=True)
        return tuple(self._replica(point, waiting[one].pop()) for one, point in pairs)

    def _replica(self, point, part):
        workload, rate_rps = self.classes.parts[part]
        return Replica(
            workload=self.instance.workloads[workload].name,
            batch=int(self.tables.batch[point]),
            sm_share=float(shares_of(gpu_data(self.instance).hardware)[self.tables.units[point] - 1]),
            rate_rps=rate_rps,
        )

    def _assembled(self, gpus, method):
        name = self.instance.fleet[0].gpu
        return Plan(
            version=1, instance=self.instance.name, digest=self.instance.digest, method=method,
            gpus=tuple(
                PlannedGpu(gpu=name, mig=False, slices=(Slice(profile=WHOLE, replicas=replicas),)) for replicas in gpus
            ),
        )

    def patterns(self, plan):
        """The patterns of a Plan; None when there is no plan or these classes and tables do not bear it out."""
        if plan is None:
            return None
        parts, of_part = {}, self.classes.of_part
        for part, (workload, _) in enumerate(self.classes.parts):
            parts.setdefault(self.instance.workloads[workload].name, []).append(int(of_part[part]))
        found = []
        for gpu in plan.gpus:
            names = [replica.workload for piece in gpu.slices for replica in piece.replicas]
            if not all(map(parts.get, names)):
                return None
            found.append(tuple(sorted(parts[name].pop() for name in names)))
        bears = not any(parts.values()) and all(self.points(pattern) is not None for pattern in set(found))
        return found if bears else None

    def matched(self, patterns, slots):
        """Patterns of classes from patterns of slots, which are demands; slots that nobody needs stay empty."""
        takers = _takers(self.classes, slots, Counter(slot for pattern in patterns for slot in pattern))
        found = [[takers[slot].pop() for slot in pattern if takers[slot]] for pattern in patterns]
        return [tuple(sorted(pattern)) for pattern in found if pattern]


def shared_problem(instance):
    """The SharedProblem of an instance that methods with FEATURES can do."""
    classes = classes_of(instance)
    return SharedProblem(instance, classes, tables_of(instance, classes.demands))


def plan_shared(instance, name, search):
    """The Outcome of a method: a refusal, or what its search says.

    Parameters
    ----------
    instance
        What methods with FEATURES can do.
    name
        The method's.
    search
        Takes the SharedProblem and the ``perf_counter`` of the start; returns patterns and, by name, the status,
        termination and bound of an Outcome.
    """
    started = perf_counter()
    refused = refusal(instance, best_segments(instance), started)
    if refused:
        return refused
    problem = shared_problem(instance)
    built = perf_counter()
    patterns, found = search(problem, started)
    return problem.outcome(patterns, name, **found, build_seconds=built - started,
                           solve_seconds=perf_counter() - built)


def is_shared(instance):
    """Whether the instance asks for plans under interference, and for no more than FEATURES."""
    asked = needs(instance)
    return "interference" in asked and asked <= FEATURES


def _takers(classes, slots, counts):
    """Classes that take the slots of each demand, hardest first.

    The hardest has the shortest budget, of equals the highest rate; among the slots that serve it, it takes one
    of the smallest sufficient rate, of equals the longest budget: the others have least use for that.
    """
    takers, free, by_model = {slot: [] for slot in counts}, dict(counts), {}
    for slot in sorted(counts, key=lambda one: (slots[one][2], -slots[one][1])):
        by_model.setdefault(slots[slot][0], []).append(slot)
    for index, demand in enumerate(classes.demands):
        for _ in classes.members[index]:
            slot = next(one for one in by_model[demand[0]] if serves(slots[one], demand))
            takers[slot].append(index)
            free[slot] -= 1
            if not free[slot]:
                by_model[demand[0]].remove(slot)
    return takers

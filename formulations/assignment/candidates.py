"""The patterns that slices of a fleet may hold, as tables by slice type, and the plan that results from a choice of
them.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provision.formulations.assignment import interference, network, turns
from provision.formulations.assignment.dealt import Held, plan_of
from provision.formulations.assignment.gpus import Candidates
from provision.formulations.assignment.patterns import Criteria, SlicePattern, alone, most_slices, slice_types_of
from provision.formulations.bounds.replica_set_bound import replica_set_bound
from provision.formulations.search.feasibility import fastest_ms, runs_nowhere
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import SliceType, best_segments, cap_rps
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.search import Status


def every_unrouted(instance: Instance) -> list[list[SlicePattern]]:
    """By slice type, the patterns that are feasible whichever rates, up to their capacities, their replicas get.

    Raises
    ------
    UnsupportedError
        If there are too many to list.
    """
    every, criteria = range(len(instance.workloads)), Criteria(instance)
    return [_unrouted(instance, slice_type, every, criteria) for slice_type in slice_types_of(instance)]


def _unrouted(instance: Instance, slice_type: SliceType, workloads: Sequence[int], criteria: Criteria
              ) -> list[SlicePattern]:
    """The patterns of the given workloads on a slice type that are feasible whichever rates their replicas get."""
    return [*alone(instance, slice_type, workloads), *interference.shared(instance, slice_type, workloads, criteria)]


class PatternCandidates(Candidates):
    """The patterns of every slice type, as tables.

    ``part`` and ``replicas`` hold one array (patterns, workloads) per slice type: the fraction of a workload's planned
    rate that a pattern carries, and the number of its replicas of the workload. For slice types whose shared patterns
    are not all listed, ``relaxed`` bounds what shared slices carry; for others it is None.

    Parameters
    ----------
    instance
        The instance.
    unrouted
        Its `every_unrouted` patterns.
    until
        When listing the other patterns must end. After that some are missing.
    """

    too_small: tuple[Status, str] = "infeasible", "proved: no plan fits the fleet; allow more GPUs, or fewer replicas"

    def __init__(self, instance: Instance, unrouted: Sequence[Sequence[SlicePattern]], until: Deadline) -> None:
        self.instance, self.criteria = instance, Criteria(instance)
        self.slice_types = slice_types_of(instance)
        listed = [self._listed(slice_type, until) for slice_type in self.slice_types]
        self.patterns = [self.criteria.undominated([*known, *found])
                         for known, (found, _) in zip(unrouted, listed, strict=True)]
        self.relaxed = [bound for _, bound in listed]
        tables = [self._table(patterns) for patterns in self.patterns]
        self.part, self.replicas = [one for one, _ in tables], [one for _, one in tables]
        pairs = [[self._own(w, e) for e in range(len(instance.fleet))] for w in range(len(instance.workloads))]
        self.own = np.array([[own for own, _ in row] for row in pairs])
        self.most_own = np.array([[most for _, most in row] for row in pairs])

    @property
    def loose(self) -> bool:
        """Whether the model contains some plans only as a relaxation, because not all patterns are listed."""
        return any(one is not None for one in self.relaxed)

    @property
    def bound(self) -> float:
        """A bound on the objective that is known before any search. For max_throughput, it bounds the negative
        objective.
        """
        return -math.inf if self.criteria.counted else self.replica_sets[0]

    @cached_property
    def replica_sets(self) -> tuple[float, list[float]]:
        """The replica-set bound, and for each workload the least number of compute slices that carry its rate.

        Both hold for slices that nobody shares only; all are zero if workloads may share slices.
        """
        shared = any(len(pattern.replicas) > 1 for patterns in self.patterns for pattern in patterns)
        if self.loose or shared or self.criteria.counted or any(
            data.single_pattern for data in self.instance.performance
        ):
            return 0.0, [0.0] * len(self.criteria.planned_rps)
        segments = best_segments(self.instance)
        useful_rps = np.minimum(segments.throughput_rps, cap_rps(self.instance)[:, None])
        found = replica_set_bound(self.instance, useful_rps, segments, partitions_of(self.instance, segments))
        return found[0], list(found[1].cost)

    def of_entry(self, entry: int) -> list[int]:
        """The indices of the slice types of a fleet entry."""
        return [k for k, slice_type in enumerate(self.slice_types) if slice_type.entry == entry]

    def most(self, slice_type: int) -> int:
        """The number of slots of a slice type on one GPU."""
        return most_slices(self.instance, self.slice_types[slice_type])

    def _listed(self, slice_type: SliceType, until: Deadline
                ) -> tuple[list[SlicePattern], network.SharedSliceBound | None]:
        """Patterns of closed networks and of turns, and a bound on those that are not listed."""
        listing = turns if turns.turns_of(self.instance, slice_type) else network
        found, complete = listing.shared(self.instance, slice_type, until)
        return found, None if complete else listing.relaxed(self.instance, slice_type)

    def _table(self, patterns: list[SlicePattern]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        parts, replicas = np.zeros((2, len(patterns), len(self.criteria.planned_rps)))
        for q, pattern in enumerate(patterns):
            for one in pattern.replicas:
                planned = self.criteria.planned_rps[one.workload]
                parts[q, one.workload] += one.capacity_rps / planned if planned else 1.0
                replicas[q, one.workload] += 1
        return parts if not len(parts) else np.minimum(parts, np.where(self._fixed(patterns), np.inf, 1.0)), \
            replicas.astype(int)

    @staticmethod
    def _fixed(patterns: list[SlicePattern]) -> NDArray[np.bool_]:
        return np.array([[one.routed] for one in patterns])

    def can(self, workload: int, entry: int) -> bool:
        """Whether GPUs of a fleet entry can serve a workload."""
        return any(
            self.replicas[k][:, workload].any()
            or ((relaxed := self.relaxed[k]) is not None and math.isfinite(relaxed.time[workload]))
            for k in self.of_entry(entry)
        )

    def _own(self, w: int, e: int) -> tuple[float, float]:
        """The least number of GPUs of an entry that serve a workload alone, and the most that it can make use of."""
        one = self.instance.workloads[w]
        if not self.can(w, e):
            return math.inf, 0
        own = min((self._alike(w, k, pattern) for k in self.of_entry(e) for pattern in self._by_itself(w, k)),
                  default=math.inf)
        return own, own if one.max_replicas is None else min(own, one.max_replicas)

    def _by_itself(self, w: int, k: int) -> list[SlicePattern]:
        """Patterns of a slice type with replicas of one workload only."""
        if turns.turns_of(self.instance, self.slice_types[k]) is None:
            return _unrouted(self.instance, self.slice_types[k], [w], self.criteria)
        only = (SlicePattern(tuple(one for one in pattern.replicas if one.workload == w), 0.0)
                for pattern in self.patterns[k] if not pattern.routed)
        return [pattern for pattern in only if pattern.replicas]

    def _alike(self, w: int, k: int, pattern: SlicePattern) -> float:
        """The number of GPUs that serve a workload if all their slices hold one given pattern; infinite if that breaks
        the workload's limits on replicas.
        """
        one, each = self.instance.workloads[w], len(pattern.replicas)
        part = float(self._table([pattern])[0][0, w])
        carried = min(one.max_share_per_gpu, self.most(k) * part)
        for_rate = math.ceil(1 / carried - TOLERANCE) if self.criteria.planned_rps[w] else 0
        gpus = max(for_rate, math.ceil(one.min_replicas / (each * self.most(k))))
        slices = min(self.most(k), math.ceil(one.max_share_per_gpu / part - TOLERANCE)) * gpus
        if one.max_replicas is not None and max(slices * each, one.min_replicas) > one.max_replicas:
            return math.inf
        return gpus

    def hopeless(self) -> tuple[Status | None, str]:
        """The status and a reason if a workload that needs a replica can have none; else (None, ``""``)."""
        entries = range(len(self.instance.fleet))
        lines = [self._slow(w) for w, one in enumerate(self.instance.workloads)
                 if (one.rate_rps or one.min_replicas) and not any(self.can(w, e) for e in entries)]
        return ("infeasible" if lines else None, "; ".join(lines))

    def _slow(self, w: int) -> str:
        one = self.instance.workloads[w]
        least_ms = min(fastest_ms(self.instance, model) for model in one.models)
        if math.isinf(least_ms):
            return runs_nowhere(self.instance, one)
        enough_ms = math.ceil(least_ms / self.instance.policy.part_of_slo * 1000) / 1000
        return (f"workload {one.name}: no slice meets slo_ms {one.slo_ms:g}; the fastest takes {least_ms:.4g} ms: "
                f"slo_ms {enough_ms:g} or more would work")

    def plan(self, copies: Iterable[int], held: list[Held], name: str) -> Plan | None:
        """The plan of chosen patterns; see ``dealt.plan_of``."""
        return plan_of(self.criteria, copies, held, name)

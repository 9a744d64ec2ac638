"""The contents that GPUs of a fleet may hold, as tables over slice kinds, and the plan from a choice of them."""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provision.formulations.assignment import interference, network
from provision.formulations.assignment.contents import SliceContent, Worth, alone, kinds_of, most_slices
from provision.formulations.assignment.dealt import Held, plan_of
from provision.formulations.assignment.gpus import Candidates, Program
from provision.formulations.assignment.slices import ContentRows
from provision.formulations.bounds.cover_bound import cover_bound
from provision.formulations.search.feasibility import fastest_ms
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import SliceKind, best_segments, cap_rps
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.search import Status


class ContentCandidates(Candidates):
    """The contents of every slice kind; ``part`` and ``replicas`` are (contents, workloads) of a kind.

    ``relaxed`` bounds what shared slices of a kind carry where their contents are not all listed.
    """

    too_small: tuple[Status, str] = "infeasible", "proved: no plan fits the fleet; allow more GPUs, or fewer replicas"

    def __init__(self, instance: Instance) -> None:
        self.instance, self.worth = instance, Worth(instance)
        self.kinds = kinds_of(instance)
        every = range(len(instance.workloads))
        routed = [network.shared(instance, kind) for kind in self.kinds]
        self.contents = [self.worth.undominated([*self._unrouted(kind, every), *found])
                         for kind, (found, _) in zip(self.kinds, routed, strict=True)]
        self.relaxed = [None if complete else network.relaxed(instance, kind)
                        for kind, (_, complete) in zip(self.kinds, routed, strict=True)]
        tables = [self._table(contents) for contents in self.contents]
        self.part, self.replicas = [one for one, _ in tables], [one for _, one in tables]
        pairs = [[self._own(w, e) for e in range(len(instance.fleet))] for w in range(len(instance.workloads))]
        self.own = np.array([[own for own, _ in row] for row in pairs])
        self.most_own = np.array([[most for _, most in row] for row in pairs])

    @property
    def loose(self) -> bool:
        """Whether the model contains some plans only as a relaxation."""
        return any(one is not None for one in self.relaxed)

    @property
    def bound(self) -> float:
        """A bound on the objective (as a loss) before any search."""
        return -math.inf if self.worth.counted else self.covers[0]

    @cached_property
    def covers(self) -> tuple[float, list[float]]:
        """Cover bound, and the compute slices that each workload needs at least; zeros where workloads may share."""
        shared = any(len(content.replicas) > 1 for contents in self.contents for content in contents)
        if self.loose or shared or self.worth.counted or any(
            data.kind == "igniter" for data in self.instance.performance
        ):
            return 0.0, [0.0] * len(self.worth.planned_rps)
        segments = best_segments(self.instance)
        useful_rps = np.minimum(segments.throughput_rps, cap_rps(self.instance)[:, None])
        found = cover_bound(self.instance, useful_rps, segments, partitions_of(self.instance, segments))
        return found[0], list(found[1].cost)

    def of_entry(self, entry: int) -> list[int]:
        """The kinds of a fleet entry."""
        return [k for k, kind in enumerate(self.kinds) if kind.entry == entry]

    def most(self, kind: int) -> int:
        """Slots of a kind on one GPU."""
        return most_slices(self.instance, self.kinds[kind])

    def _unrouted(self, kind: SliceKind, workloads: Sequence[int]) -> list[SliceContent]:
        """The contents of some workloads that hold at any routed rates up to their capacities."""
        return [*alone(self.instance, kind, workloads),
                *interference.shared(self.instance, kind, workloads, self.worth)]

    def _table(self, contents: list[SliceContent]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        parts, replicas = np.zeros((2, len(contents), len(self.worth.planned_rps)))
        for q, content in enumerate(contents):
            for one in content.replicas:
                planned = self.worth.planned_rps[one.workload]
                parts[q, one.workload] += one.capacity_rps / planned if planned else 1.0
                replicas[q, one.workload] += 1
        return parts if not len(parts) else np.minimum(parts, np.where(self._fixed(contents), np.inf, 1.0)), \
            replicas.astype(int)

    @staticmethod
    def _fixed(contents: list[SliceContent]) -> NDArray[np.bool_]:
        return np.array([[one.routed] for one in contents])

    def can(self, workload: int, entry: int) -> bool:
        """Whether GPUs of an entry can be of use to a workload."""
        return any(
            self.replicas[k][:, workload].any()
            or ((relaxed := self.relaxed[k]) is not None and math.isfinite(relaxed.time[workload]))
            for k in self.of_entry(entry)
        )

    def _own(self, w: int, e: int) -> tuple[float, float]:
        """The least GPUs of an entry that serve a workload by itself, and the most on which it can be of use."""
        one = self.instance.workloads[w]
        if not self.can(w, e):
            return math.inf, 0
        own = min((self._alike(w, k, content) for k in self.of_entry(e)
                   for content in self._unrouted(self.kinds[k], [w])), default=math.inf)
        return own, own if one.max_replicas is None else min(own, one.max_replicas)

    def _alike(self, w: int, k: int, content: SliceContent) -> float:
        """The number of GPUs with one content in all slices that serves a workload; infinite where its limits break."""
        one, each = self.instance.workloads[w], len(content.replicas)
        part = float(self._table([content])[0][0, w])
        carried = min(one.max_share_per_gpu, self.most(k) * part)
        for_rate = math.ceil(1 / carried - TOLERANCE) if self.worth.planned_rps[w] else 0
        gpus = max(for_rate, math.ceil(one.min_replicas / (each * self.most(k))))
        slices = min(self.most(k), math.ceil(one.max_share_per_gpu / part - TOLERANCE)) * gpus
        if one.max_replicas is not None and max(slices * each, one.min_replicas) > one.max_replicas:
            return math.inf
        return gpus

    def hopeless(self) -> tuple[Status | None, str]:
        """Status and reason when some workload that needs a replica can have none; without a status otherwise."""
        entries = range(len(self.instance.fleet))
        lines = [self._slow(w) for w, one in enumerate(self.instance.workloads)
                 if (one.rate_rps or one.min_replicas) and not any(self.can(w, e) for e in entries)]
        return ("infeasible" if lines else None, "; ".join(lines))

    def _slow(self, w: int) -> str:
        one = self.instance.workloads[w]
        least_ms = min(fastest_ms(self.instance, model) for model in one.models)
        if math.isinf(least_ms):
            return f"workload {one.name}: no slice of this fleet can run {' or '.join(one.models)} at all"
        enough_ms = math.ceil(least_ms / self.instance.policy.budget_ms(1.0) * 1000) / 1000
        return (f"workload {one.name}: no slice meets slo_ms {one.slo_ms:g}; the fastest takes {least_ms:.4g} ms: "
                f"slo_ms {enough_ms:g} or more would work")

    def rows(self, copies: NDArray[np.int64], program: Program, name: str) -> ContentRows:
        """The model over these GPUs, in a program."""
        return ContentRows(self, copies, program, name)

    def plan(self, copies: Iterable[int], held: list[Held], name: str) -> Plan | None:
        """The plan of chosen contents; see ``dealt.plan_of``."""
        return plan_of(self.worth, copies, held, name)

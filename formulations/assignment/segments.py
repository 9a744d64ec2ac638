"""Assignment on measured and closed-network data: segments in MIG slices whose places are part of the model."""

import math
from functools import cached_property

import numpy as np

from provision.formulations.assignment.gpus import TOLERANCE, Candidates, Rows
from provision.formulations.master.cover_bound import cover_bound
from provision.models.contents.alone.assemble import Layout, assemble
from provision.models.contents.alone.feasibility import unservable
from provision.models.contents.alone.partitions import partitions_of
from provision.models.contents.alone.segments import best_segments, cap_rps
from provision.models.hardware.gpu import WHOLE


class SegmentCandidates(Candidates):
    """Best segments per workload and kind; ``part`` is the part of its rate that one carries, at most its share."""

    def __init__(self, instance):
        self.instance, self.segments = instance, best_segments(instance)
        self.rate_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.useful_rps = np.minimum(self.segments.throughput_rps, cap_rps(instance)[:, None])
        rate = np.where(self.rate_rps > 0, self.rate_rps, 1)[:, None]
        self.part = np.minimum(self.useful_rps / rate, 1.0)
        self.own = np.array([[self._own(w, e) for e in range(len(instance.fleet))] for w in range(len(rate))])

    def most(self, kind):
        """Slots of a kind on one GPU."""
        profile = self.segments.kinds[kind].profile
        entry = self.instance.fleet[self.segments.kinds[kind].entry]
        return 1 if profile == WHOLE else entry.type.profiles[profile].max

    @cached_property
    def kind(self):
        """Index of the kind of every GPU type, MIG mode and profile."""
        entries = [self.instance.fleet[one.entry] for one in self.segments.kinds]
        pairs = zip(entries, self.segments.kinds, strict=True)
        return {(entry.gpu, entry.partitioned, one.profile): k for k, (entry, one) in enumerate(pairs)}

    def _own(self, workload, entry):
        """GPUs of an entry, all slices alike, that serve a workload."""
        one, found = self.instance.workloads[workload], np.inf
        for kind in self.segments.of_entry(entry):
            if self.part[workload, kind]:
                carried = min(one.max_share_per_gpu, self.most(kind) * self.part[workload, kind])
                for_rate = math.ceil(1 / carried - TOLERANCE) if self.rate_rps[workload] else 0
                found = min(found, max(for_rate, math.ceil(one.min_replicas / self.most(kind))))
        return found

    def hopeless(self):
        """Status and reason when some workload has no candidate, else both empty."""
        slow = unservable(self.instance, self.segments)
        return ("infeasible" if slow else "", "; ".join(slow))

    @cached_property
    def covers(self):
        """Cover bound on the objective, and the cheapest covers by compute slices."""
        partitions = partitions_of(self.instance, self.segments)
        return cover_bound(self.instance, self.useful_rps, self.segments, partitions)

    @property
    def bound(self):
        """Lower bound on the objective."""
        return self.covers[0]

    def rows(self, copies, program, name):
        """The model over these GPUs, in a program."""
        return SegmentRows(self, copies, program, name)

    def holds(self, plan):
        """Whether the rates of all segments add up, and no segment or GPU carries more than it may."""
        index = {one.name: w for w, one in enumerate(self.instance.workloads)}
        carried = np.zeros((len(index), len(plan.gpus)))
        for g, _, piece, one in plan.replicas():
            k = self.kind[plan.gpus[g].gpu, plan.gpus[g].mig, piece.profile]
            carried[index[one.workload], g] += one.rate_rps
            if one.rate_rps > self.segments.throughput_rps[index[one.workload], k] * (1 + TOLERANCE):
                return False
        enough = carried.sum(axis=1) >= self.rate_rps * (1 - TOLERANCE)
        return bool(enough.all() and (carried <= cap_rps(self.instance)[:, None] * (1 + TOLERANCE)).all())

    too_small = "infeasible", "the fleet has too few GPUs; partition-counts tells what share of the rates would fit"


class SegmentRows(Rows):
    """GPU g has a slice of kind k at memory slice s: ``place[g, k, s]``; ``count[w, k, g]`` segments of w in them."""

    def __init__(self, candidates, copies, program, name):
        super().__init__(candidates, copies, program, name)
        self.segments, self.part = candidates.segments, candidates.part
        self.kinds = {g: self.segments.of_entry(e) for g, e in enumerate(copies)}
        self.place = {(g, k, s): program.whole(f"place_{g}_{k}_{s}", 1)
                      for g in self.gpus for k in self.kinds[g] for s in self._starts(g, k)}
        self.count = {(w, k, g): program.whole(f"count_{w}_{k}_{g}", candidates.most(k))
                      for g in self.gpus for k in self.kinds[g] for w in np.flatnonzero(self.part[:, k]).tolist()}
        self.separate_slices()
        self.fit_slices()
        self.carry_rates()
        self.keep_replicas()
        self.cover()
        self.order_gpus()
        self.minimise_weight(candidates.bound)

    def _starts(self, g, k):
        profile = self.segments.kinds[k].profile
        return (0,) if profile == WHOLE else self.entry[g].type.profiles[profile].starts

    def separate_slices(self):
        """No two slices of a used GPU stand on one memory slice; compute slices and instances are not exceeded."""
        for g in self.gpus:
            mine = {(k, s): place for (at, k, s), place in self.place.items() if at == g}
            kinds, mig = self.segments.kinds, self.entry[g].type.mig if self.entry[g].partitioned else None
            for slot in range(mig.memory_slices if mig else 1):
                here = [(1, place) for (k, s), place in mine.items() if s <= slot < s + kinds[k].memory]
                self.program.at_most([*here, (-1, self.used[g])], 0)
            if mig:
                held = [(kinds[k].compute, place) for (k, _), place in mine.items()]
                self.program.at_most([*held, (-mig.compute_slices, self.used[g])], 0)
            for k in self.kinds[g]:
                alike = [(1, place) for (other, _), place in mine.items() if other == k]
                self.program.at_most(alike, self.candidates.most(k))

    def fit_slices(self):
        """There are no more segments of a kind than slices of it."""
        for g in self.gpus:
            for k in self.kinds[g]:
                slices = [(-1, self.place[g, k, s]) for s in self._starts(g, k)]
                self.program.at_most([*self._segments(kind=k, gpu=g), *slices], 0)

    def carry_rates(self):
        """The segments of a workload carry its planned rate, on no GPU more than its largest share."""
        for w, workload in enumerate(self.instance.workloads):
            if self.candidates.rate_rps[w] == 0:
                continue
            carried = [(-self.part[w, k], count) for (v, k, _), count in self.count.items() if v == w]
            wasted = [self._wasted(w, g) for g in self.gpus] if workload.max_share_per_gpu < 1 else []
            self.program.at_most([*carried, *wasted], TOLERANCE - 1)

    def _wasted(self, w, g):
        """Throughput of a workload on a GPU beyond its largest share there, as a part of its rate."""
        share = self.instance.workloads[w].max_share_per_gpu
        on_gpu = [(self.part[w, k], self.count[w, k, g]) for k in self.kinds[g] if (w, k, g) in self.count]
        most = sum(self.candidates.most(k) * self.part[w, k] for k in self.kinds[g])
        return self.program.level(f"wasted_{w}_{g}", on_gpu, share, most)

    def keep_replicas(self):
        """A workload has at least its least number of segments."""
        for w, workload in enumerate(self.instance.workloads):
            self.program.at_most([(-1, count) for _, count in self._segments(workload=w)], -workload.min_replicas)

    def cover(self):
        """A workload's segments have at least the compute slices of its cheapest cover (implied in whole numbers)."""
        for w, needed in enumerate(self.candidates.covers[1].cost):
            held = [(-self.segments.kinds[k].compute, count) for (v, k, _), count in self.count.items() if v == w]
            self.program.at_most(held, -int(needed))

    def order_gpus(self):
        """GPUs of one entry stand in descending order of a sum over their segments."""
        for g in self.gpus:
            before = self.alike(g)
            if before is not None:
                after = [(self._key(w, k), self.count[w, k, g]) for w, k, at in self.count if at == g]
                less = [(-self._key(w, k), self.count[w, k, before]) for w, k, at in self.count if at == before]
                self.program.at_most([*after, *less], 0)

    def _key(self, w, k):
        return 1 + w + k * len(self.workloads)

    def _segments(self, workload=None, kind=None, gpu=None):
        """Terms of the segments of a workload, or of a kind on a GPU."""
        return [(1, count) for (w, k, g), count in self.count.items()
                if workload in (None, w) and kind in (None, k) and gpu in (None, g)]

    def hint(self, plan):
        """Begin with the segments of a plan."""
        found = {}
        for g, gpu in self.numbered(plan, lambda gpu: -sum(self._key(w, k) for k, _, w in self._held(gpu))):
            found |= {(g, k, s): w for k, s, w in self._held(gpu)}
        for at, place in self.place.items():
            self.program.hint(place, int(at in found))
        for (w, k, g), count in self.count.items():
            self.program.hint(count, sum(found.get((g, k, s)) == w for s in self._starts(g, k)))

    def _held(self, gpu):
        """(kind, start, workload) of the segments on a GPU of a plan."""
        index = {one.name: w for w, one in enumerate(self.instance.workloads)}
        return [(self.candidates.kind[gpu.gpu, gpu.mig, piece.profile], piece.start, index[one.workload])
                for piece in gpu.slices for one in piece.replicas]

    def plan(self, value):
        """The plan of a solution."""
        layouts = [[] for _ in self.gpus]
        for (w, k, g), count in self.count.items():
            layouts[g] += [(k, w)] * round(value(count))
        held = [Layout(int(e), tuple(pairs)) for e, pairs in zip(self.copies, layouts, strict=True)]
        return assemble(self.instance, self.segments, held, self.name)

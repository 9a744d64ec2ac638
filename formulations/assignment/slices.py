"""The rows for slices and their patterns: placements, counts of patterns, rates, replicas, shares per GPU."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from provision.formulations.assignment.candidates import PatternCandidates
from provision.formulations.assignment.dealt import Held
from provision.formulations.assignment.gpus import Level, LinearTerms, Program, Rows, Value, Variable
from provision.models.base.arrays import Ints
from provision.models.base.tolerances import RELAXED, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan


class PatternRows(Rows):
    """The integer program that chooses slices, and a pattern for each.

    ``place[g, k, s]`` is 1 if GPU g has a slice of type k that starts at memory slice s. ``count[g, k, q]`` is the
    number of its slices of type k with pattern q. If some patterns of shared slices are not listed, the program that
    proves the bound (``program.safe`` is false) also has *open* slices, which need no listed pattern: ``open[g, k]`` on
    GPU g. Open slices of type k carry the fraction ``offer[k, w]`` of workload w's rate with ``extra[k, w]`` replicas.
    """

    def __init__(self, candidates: PatternCandidates, copies: Ints, program: Program, name: str, bound: float
                 ) -> None:
        super().__init__(candidates, copies, program, name)
        self.candidates = candidates
        self.slice_types = {g: candidates.of_entry(e) for g, e in enumerate(copies)}
        self.place = {(g, k, s): program.whole(f"place_{g}_{k}_{s}", 1)
                      for g in self.gpus for k in self.slice_types[g] for s in self._starts(g, k)}
        self.count = {(g, k, q): program.whole(f"count_{g}_{k}_{q}", candidates.most(k))
                      for g in self.gpus for k in self.slice_types[g] for q in range(len(candidates.patterns[k]))}
        self.of_gpu: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for at in self.count:
            self.of_gpu[at[0]].append(at)
        self.open: dict[tuple[int, int], Variable] = {}
        self.offer: dict[tuple[int, int], Level] = {}
        self.extra: dict[tuple[int, int], Variable] = {}
        if not program.safe:
            self.share_out()
        self.separate_slices()
        self.fit_slices()
        self.carry_rates()
        self.keep_replicas()
        self.replica_set()
        self.order_gpus()
        if candidates.criteria.counted:
            self.maximise_throughput()
        else:
            self.minimise_weight(bound)

    def _starts(self, g: int, k: int) -> tuple[int, ...]:
        profile = self.candidates.slice_types[k].profile
        return (0,) if profile == WHOLE else self.entry[g].type.profiles[profile].starts

    def share_out(self) -> None:
        """Add rows: the workloads on open slices together take no more than all the time of these slices (see
        ``network.relaxed``).
        """
        for k, relaxed in enumerate(self.candidates.relaxed):
            if relaxed is None:
                continue
            mine = {g: self.program.whole(f"open_{g}_{k}", self.candidates.most(k)) for g in self.gpus
                    if k in self.slice_types[g]}
            if not mine:
                continue
            self.open |= {(g, k): slices for g, slices in mine.items()}
            slices, most = list(mine.values()), len(mine) * self.candidates.most(k)
            for w in np.flatnonzero(np.isfinite(relaxed.time)).tolist():
                self.offer[k, w] = self.program.level(f"offer_{k}_{w}", [], 0, 1)
                self.extra[k, w] = self.program.whole(f"extra_{k}_{w}", most * relaxed.clients)
                unit, offer = self.offer[k, w]
                self.program.at_most([(1, self.extra[k, w]), *((-relaxed.clients, one) for one in slices)], 0)
                self.program.at_most([(unit, offer), (-float(relaxed.most[w]), self.extra[k, w])], RELAXED)
            time = [(float(relaxed.time[w]) * self.offer[k, w][0], self.offer[k, w][1])
                    for v, w in self.offer if v == k]
            self.program.at_most([*time, *((-1, one) for one in slices)], RELAXED)

    def separate_slices(self) -> None:
        """Add rows: no two slices of a used GPU overlap in memory, and the limits on compute slices and instances are
        kept.
        """
        for g in self.gpus:
            mine = {(k, s): place for (at, k, s), place in self.place.items() if at == g}
            slice_types, mig = (
                self.candidates.slice_types,
                self.entry[g].type.mig if self.entry[g].partitioned else None,
            )
            for slot in range(mig.memory_slices if mig else 1):
                here = [(1, place) for (k, s), place in mine.items() if s <= slot < s + slice_types[k].memory]
                self.program.at_most([*here, (-1, self.used[g])], 0)
            if mig:
                held = [(slice_types[k].compute, place) for (k, _), place in mine.items()]
                self.program.at_most([*held, (-mig.compute_slices, self.used[g])], 0)
            for k in self.slice_types[g]:
                alike = [(1, place) for (other, _), place in mine.items() if other == k]
                self.program.at_most(alike, self.candidates.most(k))

    def fit_slices(self) -> None:
        """Add rows: a GPU has at most as many patterns of a slice type as slices of it."""
        for g in self.gpus:
            for k in self.slice_types[g]:
                held = [(1, count) for (at, slice_type, _), count in self._on(g) if slice_type == k]
                held += [(1, self.open[g, k])] if (g, k) in self.open else []
                self.program.at_most([*held, *((-1, self.place[g, k, s]) for s in self._starts(g, k))], 0)

    def carry_rates(self) -> None:
        """Add rows: the patterns carry every workload's planned rate. What a GPU carries beyond the workload's largest
        share per GPU does not count; routed patterns must not exceed that share.
        """
        for w, workload in enumerate(self.instance.workloads):
            if self.candidates.criteria.planned_rps[w] == 0:
                continue
            offers = [(-unit, offer) for (_, v), (unit, offer) in self.offer.items() if v == w]
            carried, wasted = [], []
            for g in self.gpus:
                on_gpu = self._parts(w, g)
                carried += [(-part, count) for part, count in on_gpu]
                if workload.max_share_per_gpu < 1 and on_gpu:
                    wasted.append(self._wasted(w, g, on_gpu))
                    self.program.at_most(self._parts(w, g, routed=True), workload.max_share_per_gpu)
            self.program.at_most([*carried, *wasted, *offers], (RELAXED if offers else 3 * TOLERANCE) - 1)

    def _parts(self, w: int, g: int, routed: bool = False) -> LinearTerms:
        """Linear terms: the part of a workload's rate that patterns on a GPU carry. If ``routed``, only routed patterns
        count.
        """
        return [(float(self.candidates.part[k][q, w]), count) for (_, k, q), count in self._on(g)
                if self.candidates.part[k][q, w] and (self.candidates.patterns[k][q].routed or not routed)]

    def _wasted(self, w: int, g: int, on_gpu: LinearTerms) -> Level:
        """The fraction of a workload's rate on a GPU that exceeds the largest share allowed there, and so does not
        count.
        """
        most = sum(
            self.candidates.most(k) * float(self.candidates.part[k][:, w].max(initial=0)) for k in self.slice_types[g]
        )
        return self.program.level(f"wasted_{w}_{g}", on_gpu, self.instance.workloads[w].max_share_per_gpu, most)

    def keep_replicas(self) -> None:
        """Add rows: the number of a workload's replicas is between its min_replicas and its max_replicas."""
        for w, workload in enumerate(self.instance.workloads):
            replicas = [(int(self.candidates.replicas[k][q, w]), count) for (_, k, q), count in self.count.items()
                        if self.candidates.replicas[k][q, w]]
            replicas += [(1, extra) for (_, v), extra in self.extra.items() if v == w]
            self.program.at_most([(-many, count) for many, count in replicas], -workload.min_replicas)
            if workload.max_replicas is not None:
                self.program.at_most(replicas, workload.max_replicas)

    def replica_set(self) -> None:
        """Add rows: the slices with replicas of a workload have at least as many compute slices as its cheapest replica
        set.

        Whole-number solutions satisfy these rows anyway, but fractional ones do not.
        """
        for w, needed in enumerate(self.candidates.replica_sets[1]):
            if needed > 0:
                self.program.at_most([(-self.candidates.slice_types[k].compute, count) for (_, k, q), count
                                      in self.count.items() if self.candidates.replicas[k][q, w]], -int(needed))

    def order_gpus(self) -> None:
        """Add rows that break symmetry: used GPUs of an entry come first, in descending order of a weighted sum of
        their patterns.
        """
        keys = {(k, q): 1 + number for number, (k, q) in enumerate(sorted({at[1:] for at in self.count}))}
        for g in self.gpus:
            before = self.alike(g)
            if before is None:
                continue
            self.program.at_most([(1, self.used[g]), (-1, self.used[before])], 0)
            if not self.open:
                after = [(keys[at[1:]], count) for at, count in self._on(g)]
                self.program.at_most([*after, *((-keys[at[1:]], count) for at, count in self._on(before))], 0)

    def maximise_throughput(self) -> None:
        """Set the objective: the requests/s that all replicas could carry."""
        patterns = self.candidates.patterns
        self.program.minimise([(-patterns[k][q].throughput_rps, count) for (_, k, q), count in self.count.items()])

    def _on(self, g: int) -> list[tuple[tuple[int, int, int], Variable]]:
        """Pairs ((g, k, q), count variable) of a GPU."""
        return [(at, self.count[at]) for at in self.of_gpu[g]]

    def hint(self, plan: Plan) -> None:
        """Suggest the slices of a plan, with patterns of the same workloads."""
        index = {one.name: w for w, one in enumerate(self.instance.workloads)}
        placed: set[tuple[int, int, int]] = set()
        chosen: Counter[tuple[int, int, int]] = Counter()
        for g, gpu in self.numbered(plan, lambda gpu: -len(gpu.slices)):
            for piece in gpu.slices:
                owners = Counter(index[one.workload] for one in piece.replicas)
                k = next(
                    (k for k in self.slice_types[g] if self.candidates.slice_types[k].profile == piece.profile), None
                )
                if k is None:
                    continue
                q = next((q for q, table in enumerate(self.candidates.replicas[k])
                          if all(table[w] == owners[w] for w in self.workloads)), None)
                if q is not None:
                    placed.add((g, k, piece.start))
                    chosen[g, k, q] += 1
        for at, place in self.place.items():
            self.program.hint(place, int(at in placed))
        for at, count in self.count.items():
            self.program.hint(count, chosen[at])

    def plan(self, value: Value) -> Plan | None:
        """The plan of a solution; None if the solution uses open slices or does not carry the rates."""
        if any(value(one) > 0.5 for one in self.open.values()):
            return None
        held: list[list[tuple[int, int]]] = [[] for _ in self.gpus]
        for (g, k, q), count in self.count.items():
            held[g] += [(k, q)] * round(value(count))
        return self.candidates.plan(self.copies, [self._placed(g, held[g], value) for g in self.gpus], self.name)

    def _placed(self, g: int, held: Sequence[tuple[int, int]], value: Value) -> Held:
        """The (profile, start, pattern) of every slice of a GPU."""
        starts = {k: [s for s in self._starts(g, k) if value(self.place[g, k, s]) > 0.5] for k in self.slice_types[g]}
        return [
            (self.candidates.slice_types[k].profile, starts[k].pop(), self.candidates.patterns[k][q]) for k, q in held
        ]
